"""Arguments are checked by type hints: which values match a type, how a type is described, what names a class takes."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol, TypedDict, TypeVar

import gymnasium as gym
import numpy as np
import pytest

from datamodules.core.arguments import (
    check_arguments,
    check_names,
    check_ranges,
    describe_type,
    is_finite,
    matches_type,
    signature,
)
from datamodules.core.errors import ConfigurationError


class Named(Protocol):
    name: str


class Entry(TypedDict):
    name: str


class Room:
    def __init__(self, size: int, *, slip: float = 0.1, goal: int = None, marks: "Missing" = ()) -> None:  # noqa: F821, RUF013  # type: ignore
        """Take arguments; the last type cannot be found, so that all hints of this method are unknown."""


class Maze:
    def __init__(self, size: int, *, slip: float = 0.1, goal: int = None) -> None:  # noqa: RUF013  # type: ignore
        """Take arguments."""


class BigMaze(Maze):
    def __init__(self, doors: int = 3, **others: Any) -> None:
        """Take arguments of its base too."""


class Empty:
    """Class without arguments."""

    def __repr__(self) -> str:
        """Return the same text in every process: workers of pytest-xdist compare the names of tests."""
        return "Empty()"


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (int, [0, -3, np.int64(2)], [True, 2.0, "2", None, [2], math.nan]),
        (float, [0, 1.5, np.float32(2), math.nan], [True, "2", None, [1.0]]),
        (bool, [True, False, np.bool_(True)], [0, 1, "true", None]),
        (str, ["", "a"], [0, None, ["a"]]),
        (int | None, [0, None], ["a", 0.5]),
        (Annotated[int | None, "of envs"], [0, None], ["a"]),
        (Literal["a", 1, None], ["a", 1, None], ["b", True, 1.5]),
        (list[int], [[], [1], (1, 2)], [1, "ab", ["a"], {1: 2}]),
        (Sequence[Sequence[int]], [[], [[1]], [(1, 2)]], ["ab", [1], [["a"]]]),
        (tuple[float, float], [[1, 2.0], (1, 2)], [[1], [1, 2, 3], [1, "a"]]),
        (tuple[int, ...], [[], [1, 2]], [["a"], 3]),
        (list, [[1, "a"]], [{}, "a"]),
        (dict[str, float], [{}, {"a": 1}], [{"a": "b"}, {1: 2}, [1], "a"]),
        (Mapping[str, Any], [{"a": None}], [[]]),
        (dict, [{1: 2}], [[1]]),
        (Entry, [{"name": "a"}], ["a"]),
        (Named, [Empty()], [None]),
        (Empty, [Empty()], ["a"]),
        (Callable[[int], int], [abs], [3]),
        (Any, [None, 1], []),
        (object, [None, 1], []),
        (TypeVar("Unknown"), [None, 1], []),
    ],
    ids=str,
)
def test_a_value_fits_a_type_as_a_configuration_file_gives_it(hint: Any, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if not matches_type(value, hint)] == []
    assert [value for value in bad if matches_type(value, hint)] == []


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (int | None, "a whole number or null"),
        (Literal["a", "b"], "a or b"),
        (list[Literal["a", "b"]] | None, "a list, each a or b or null"),
        (tuple[float, float], "a list of 2: a finite number, a finite number"),
        (tuple[int, ...], "a list, each a whole number"),
        (dict[str, float], "a mapping of a text to a finite number"),
        (Annotated[bool, "of walls"], "true or false"),
        (Empty, "Empty"),
    ],
    ids=str,
)
def test_a_type_is_said_in_words(hint: Any, words: str) -> None:
    assert describe_type(hint) == words


@pytest.mark.parametrize(
    ("made", "given", "said"),
    [
        (Maze, {"size": "two"}, "size of Maze is 'two'; it must be a whole number."),
        (Maze, {"size": None}, "size of Maze is null; it must be a whole number."),
        (Maze, {"size": 3, "slipp": 0.2}, "Maze takes no slipp: did you mean slip?"),
        (Maze, {"size": 3, "x": 0.2}, "Maze takes no x: it takes size, slip, goal."),
        (Maze, {"slip": 0.2}, "Maze needs size, a whole number: set it."),
        (Room, {"size": "two", "slpi": 1}, "Maze takes no slpi: did you mean slip?"),
        (BigMaze, {"doors": 2, "slip": "x"}, "slip of Maze is 'x'; it must be a finite number."),
        (Empty, {"size": 2}, "Maze takes no size: it takes no arguments."),
        (functools.partial(Maze, size=2), {"size": "x"}, "size of Maze is 'x'; it must be a whole number."),
        (max, {}, None),
        (Maze, {"size": 2, "goal": None}, None),
        (Room, {"size": "two"}, None),
        (BigMaze, {"colour": "red"}, None),
        (functools.partial(Maze, size=2), {}, None),
        (functools.partial(Maze, 2), {}, None),
        (gym.Env, {}, None),
    ],
    ids=str,
)
def test_the_first_wrong_argument_is_named(made: Any, given: dict[str, Any], said: str | None) -> None:
    if said is None:
        check_arguments(made, given, "Maze")
    else:
        with pytest.raises(ConfigurationError) as caught:
            check_arguments(made, given, "Maze")
        assert str(caught.value) == said


@pytest.mark.parametrize("value", [math.nan, -math.inf, 10**400, np.float32("nan")])
def test_a_number_that_is_not_finite_is_refused_unless_it_is_allowed(value: Any) -> None:
    for slip in (value, [1.0, {"a": value}]):
        assert not is_finite(slip)
    with pytest.raises(ConfigurationError, match=r"^slip of Maze is .*; it must be a finite number\.$"):
        check_arguments(Maze, {"size": 3, "slip": value}, "Maze")

    check_arguments(Maze, {"size": 3, "slip": value}, "Maze", finite=False)


def test_names_alone_are_checked_without_types() -> None:
    check_names(Maze, {"size": "two"}, "Maze")

    with pytest.raises(ConfigurationError, match=r"^Maze takes no env_kwargs\.sizes: did you mean size\?$"):
        check_names(Maze, {"sizes": 2}, "Maze", "env_kwargs.")


def test_a_class_with_other_arguments_has_those_of_its_bases_and_takes_kwargs() -> None:
    found = signature(BigMaze)

    assert (list(found.hints), found.required, found.takes_kwargs) == (["size", "slip", "goal", "doors"], [], True)
    assert signature(Maze).required == ["size"] and not signature(Maze).takes_kwargs


def test_of_several_rules_only_the_first_broken_one_is_named() -> None:
    check_ranges("The maze", ("size", 3, True, "at least 2"))

    with pytest.raises(ConfigurationError, match=r"^The maze has walls -1; choose at least 0\.$"):
        check_ranges(
            "The maze", ("size", 3, True, "at least 2"), ("walls", -1, False, "at least 0"), ("x", 1, False, "2")
        )
