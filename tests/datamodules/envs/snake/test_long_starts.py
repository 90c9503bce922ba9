import inspect
import re
from random import Random

import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.envs.snake.env import Snake
from datamodules.envs.snake.long_starts import hamiltonian_cycle
from tests.oracles.snake_rules import text


def snake(**arguments) -> Snake:
    return Snake(**{"dim": 6, "distance_to_border": 2, "max_start_length": 35, "observation": "grid"} | arguments)


def long(game: Snake, noise: torch.Tensor) -> dict:
    """States that all start with long snakes, from uniforms `[B, 4]`."""
    return game.initial(torch.cat((noise, torch.zeros(len(noise), 1)), 1))


def body(game: Snake, state: dict, row: int) -> list[int]:
    """The cells of a snake from its tail to its head, as its marks lead."""
    board, cells = state["board"][row], [int(state["tail"][row])]
    while cells[-1] != int(state["head"][row]):
        exit_ = int(board[cells[-1]]) & 3
        cells.append(cells[-1] + (-game.dim, 1, game.dim, -1)[exit_])
    return cells


@pytest.mark.parametrize(("dim", "different"), [(2, 2), (4, 4), (6, 16), (10, 20)])
def test_cycles_pass_every_cell_once_by_single_steps_and_differ(dim, different):
    cycles = [hamiltonian_cycle(dim, Random(seed)) for seed in range(20)]
    for cycle in cycles:
        assert sorted(cycle) == list(range(dim**2))
        for before, after in zip(cycle, cycle[1:] + cycle[:1], strict=True):
            assert sum(abs(a - b) for a, b in zip(divmod(before, dim), divmod(after, dim), strict=True)) == 1
    turned = {tuple(cycle[(start := cycle.index(0)) :] + cycle[:start]) for cycle in cycles}
    assert len(turned) >= different


def test_snakes_start_with_uniform_lengths_and_food_on_a_free_cell():
    game = snake(start_length=3, max_start_length=34)
    state = long(game, torch.rand(32_000, 4))
    counts = torch.bincount(state["length"], minlength=36)[3:35].double()
    assert counts.sum() == 32_000
    assert ((counts - 1000) ** 2 / 1000).sum() < 65  # chi-square of 31, p = 0.0003
    shown = game.observation(state)
    assert torch.equal(((shown == 1) | (shown == 2)).sum(1), state["length"])
    assert torch.equal((shown == 3).sum(1), torch.ones(32_000, dtype=torch.int64))


def test_food_is_uniform_over_the_free_cells():
    game, noise = snake(max_start_length=3), torch.rand(33_000, 4) * torch.tensor([0.0, 0.0, 0.0, 1.0])
    counts = (game.observation(long(game, noise)) == 3).double().sum(0)
    assert (counts > 0).sum() == 33
    assert ((counts[counts > 0] - 1000) ** 2 / 1000).sum() < 69  # chi-square of 32, p = 0.0002


def test_marks_lead_from_the_tail_to_the_head_and_expire_in_that_order():
    game = snake()
    state = long(game, torch.rand(200, 4))
    for row in range(200):
        cells, length = body(game, state, row), int(state["length"][row])
        assert len(cells) == length == len(set(cells))
        assert (state["board"][row, cells[:-1]] >> 2).tolist() == list(range(1, length))
        assert not length > 1 or int(state["board"][row, cells[-2]]) & 3 == int(state["direction"][row])


def test_a_snake_that_follows_its_cycle_fills_the_board():
    game, rows = snake(), 64
    noise = torch.rand(rows, 4)
    state, marks = long(game, noise), game.long_starts.constants.on(torch.device("cpu"))[1]
    exits = marks[(noise[:, 1] * len(marks)).long()] & 3
    filled, before = torch.zeros(rows, dtype=torch.bool), state["length"]
    for _ in range(36 * 36):
        action = exits.gather(1, state["head"].clamp(max=35)[:, None]).squeeze(1)
        state, _, terminated, truncated = game.transition(state, action, torch.rand(rows, 5))
        assert not (truncated & ~filled).any() and not (terminated & (state["length"] < 36)).any()
        filled |= state["length"] == 36
    assert filled.all()
    assert torch.equal(game.info(state)["food"], 36 - before)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_a_share_of_the_games_starts_long_and_the_others_as_ever(share):
    game, noise = snake(start_length=3, max_start_length=34, long_start_share=share), torch.rand(4000, 5)
    state, ordinary = game.initial(noise), snake(start_length=3, max_start_length=None).initial(noise[:, :3])
    same = torch.stack([(state[name] == leaf).view(4000, -1).all(1) for name, leaf in ordinary.items()]).all(0)
    assert torch.equal(same, noise[:, 4] >= share)
    assert same.float().mean() == pytest.approx(1 - share, abs=0.04)  # five standard errors


def test_food_counts_from_the_length_at_the_start():
    game = snake()
    state = long(game, torch.rand(50, 4))
    assert state["length"].unique().numel() > 10
    assert (game.info(state)["food"] == 0).all()
    assert torch.equal(game.info(state)["snake_length"], state["length"])


def test_starvation_allows_for_the_length_at_the_start():
    game = snake(start_length=3, max_start_length=3, observation="features")
    state = long(game, torch.zeros(1, 4))
    state = state | {"food": torch.tensor([36])}  # beyond the board
    cycle = game.long_starts.constants.on(torch.device("cpu"))[1][0] & 3
    for step in range(130):
        state, _, terminated, truncated = game.transition(state, cycle[state["head"]], torch.zeros(1, 5))
        assert (bool(terminated), bool(truncated)) == (False, step == 129)


def test_ordinary_games_draw_as_many_numbers_and_have_the_same_state_as_ever():
    ordinary, late = snake(max_start_length=None), snake()
    assert (ordinary.noise_size, late.noise_size) == (3, 5)
    assert late.initial(torch.rand(1, 5)).keys() - ordinary.initial(torch.rand(1, 3)).keys() == {"start_length"}


def test_initial_is_one_graph_with_the_bits_of_eager_execution():
    game, noise = snake(), torch.rand(256, 5)
    compiled = torch.compile(game.initial, backend="eager", fullgraph=True)(noise)
    expected = game.initial(noise)
    assert all(torch.equal(compiled[name], expected[name]) for name in expected)
    assert {name: leaf.dtype for name, leaf in expected.items() if name != "start_length"} == {
        name: leaf.dtype for name, leaf in snake(max_start_length=None).initial(noise[:, :3]).items()
    }


def test_the_first_board_looks_like_this():
    game = snake(max_start_length=20, start_length=3)
    state = long(game, torch.tensor([[0.999, 0.1, 0.4, 0.0]]))
    lines = text(game, state)
    assert sum(line.count("o") for line in lines) == 19
    assert re.findall("[<>^v]", "".join(lines)) == ["^>v<"[int(state["direction"])]]


@pytest.mark.parametrize(
    "arguments", [{"dim": 7}, {"max_start_length": 2}, {"max_start_length": 36}], ids=["odd", "short", "full"]
)
def test_lengths_that_do_not_fit_are_refused_in_one_sentence(arguments):
    with pytest.raises(ConfigurationError, match="choose an even dim and max_start_length from start_length") as error:
        snake(**arguments)
    assert str(error.value).endswith(".") and "\n" not in str(error.value)


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_out_of_range_is_refused(share):
    with pytest.raises(ConfigurationError, match=f"long_start_share is {share}; choose from 0 to 1."):
        snake(long_start_share=share)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_share_of_long_starts_without_their_length_is_refused(share: float) -> None:
    with pytest.raises(ConfigurationError, match=r"without max_start_length .*: give max_start_length, or set long_st"):
        snake(max_start_length=None, long_start_share=share)


def test_docstring_and_signature_have_the_arguments_in_the_same_order() -> None:
    documented = re.findall(r"^ {8}([a-z_]+): ", str(Snake.__doc__), re.MULTILINE)

    assert documented == list(inspect.signature(Snake).parameters)
