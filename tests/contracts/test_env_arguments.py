"""Arguments of every registered environment: a wrong type or name is answered in one sentence that names it."""

import inspect
import math
from typing import Any, get_type_hints

import gymnasium
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import datamodules.envs  # noqa: F401  (registers them)
from datamodules.core.arguments import is_finite, matches_type
from datamodules.core.errors import ConfigurationError
from datamodules.vector.make_env import make_env, make_vector_env, probe_spaces
from datamodules.vector.resolve_env import resolve_env

IDS = sorted(name for name in gymnasium.registry if "datamodules.envs" in str(gymnasium.registry[name].entry_point))
VALUES = ("two", "", 2.5, -1, 0, 3, True, None, math.nan, math.inf, [1], ["two"], [[0, "x"]], {}, {"a": "b"}, {"a": 1})
"""Values of a YAML file."""


def arguments(name: str) -> dict[str, Any]:
    """Arguments of an environment by name, with their types, without Gymnasium's `render_mode`."""
    source = resolve_env(name)
    if source.tensor_env is not None:
        made: Any = getattr(source.tensor_env, "func", source.tensor_env)
    else:
        made = gymnasium.envs.registration.load_env_creator(gymnasium.registry[name].entry_point)
    hints = get_type_hints(made.__init__)
    return {each: hints[each] for each in inspect.signature(made).parameters if each != "render_mode"}


ARGUMENTS = [(name, each, hint) for name in IDS for each, hint in arguments(name).items()]
every_argument = pytest.mark.parametrize(("name", "argument", "hint"), ARGUMENTS, ids=lambda each: str(each)[:40])


@every_argument
def test_a_value_of_another_type_is_refused_by_name(name: str, argument: str, hint: Any) -> None:
    wrong = [value for value in VALUES if not (matches_type(value, hint) and is_finite(value))]

    assert wrong
    for value in wrong:
        for make in (probe_spaces, make_env):
            with pytest.raises(ConfigurationError, match=rf"^env_kwargs\.{argument} of {name} is .*; it must be "):
                make(name, {argument: value})


@every_argument
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_a_value_of_its_type_makes_an_environment_or_is_refused(
    name: str, argument: str, hint: Any, data: st.DataObject
) -> None:
    value = data.draw(
        st.sampled_from([value for value in VALUES if matches_type(value, hint) and is_finite(value)] or [None])
        | small(hint)
    )
    if not matches_type(value, hint):
        return

    try:
        probe_spaces(name, {argument: value})
    except ConfigurationError as error:
        assert "could not be created" not in str(error)  # Python's own words


def small(hint: Any) -> st.SearchStrategy[Any]:
    """Draw small values of a type."""
    drawn = (
        [st.integers(-3, 8)] * matches_type(1, hint) + [st.floats(-3, 3)] * matches_type(0.5, hint) + [st.booleans()]
    )
    return st.one_of(*drawn, st.none(), st.lists(st.integers(-1, 5), max_size=3))


@pytest.mark.parametrize("name", IDS)
def test_an_unknown_argument_is_refused_with_the_nearest(name: str) -> None:
    first = next(iter(arguments(name)))

    for make in (probe_spaces, make_env):
        with pytest.raises(ConfigurationError, match=rf"^{name} takes no env_kwargs\.{first}s: did you mean .*{first}"):
            make(name, {f"{first}s": 1})
        with pytest.raises(ConfigurationError, match=rf"^{name} takes no env_kwargs\.qqq: it takes .*{first}"):
            make(name, {"qqq": 1})


@pytest.mark.parametrize("name", [name for name in IDS if resolve_env(name).tensor_env is not None])
def test_gymnasium_alone_gives_the_same_sentence(name: str) -> None:
    first = next(iter(arguments(name)))

    for make in (gymnasium.make, gymnasium.make_vec):
        with pytest.raises(ConfigurationError, match=rf"{first} of \w+ is .*object.*; it must be "):
            make(name, **{first: object()})
        with pytest.raises(ConfigurationError, match=rf" takes no {first}s: did you mean .*{first}"):
            make(name, **{f"{first}s": 1})


def test_arguments_of_gymnasiums_maker_are_no_arguments_of_the_environment() -> None:
    limit = {"max_episode_steps": 3}

    make_vector_env("Horde-v0", 2, backend="sync", env_kwargs=limit).close()
    make_env("Horde-v0", limit | {"render_mode": "ansi"}).close()
    with pytest.raises(ConfigurationError, match=r"^Horde-v0 takes no env_kwargs\.max_episode_steps: it takes size"):
        make_vector_env("Horde-v0", 2, backend="device", env_kwargs=limit)
