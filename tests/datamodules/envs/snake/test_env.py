import hashlib
from typing import Any

import numpy as np
import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.envs.snake.env import Snake
from tests.oracles.snake_rules import (
    DOWN,
    LEFT,
    RIGHT,
    UP,
    at_random,
    greedy_and_safe,
    place_food,
    play,
    run,
    start,
    text,
)


def test_starts_heading_right_with_its_body_to_the_left():
    snake = Snake(dim=7, start_length=3, distance_to_border=2)
    state = place_food(snake, start(snake), 6, 6)
    assert text(snake, state) == [".......", ".......", "oo>....", ".......", ".......", ".......", "......*"]


def test_head_starts_uniformly_between_the_distances_to_the_border():
    snake = Snake(observation="features")
    obs = snake.observation(snake.initial(torch.rand(9000, 3)))
    x, y = (10 * obs[:, 15:17]).round().long().unbind(1)
    counts = torch.bincount((x - 3) * 3 + y - 3, minlength=9).double()
    assert {*x.tolist(), *y.tolist()} == {3, 4, 5}
    assert ((counts - 1000) ** 2 / 1000).sum() < 27.9  # chi-square of 8 degrees of freedom, p = 0.0005


def test_moves_up_right_down_left():
    snake = Snake(dim=7, distance_to_border=2)
    state = place_food(snake, start(snake), 6, 6)
    heads = [(3, 2), (3, 1), (4, 1), (4, 2)]
    for move, (x, y) in zip((RIGHT, UP, RIGHT, DOWN), heads, strict=True):
        state, reward, terminated, truncated = play(snake, state, move)
        assert text(snake, state)[y][x] == "^>v<"[move]
        assert (reward, terminated, truncated) == (0.0, False, False)


def test_a_reversal_goes_straight_on():
    snake = Snake(dim=7, distance_to_border=2)
    state = place_food(snake, start(snake), 6, 6)
    state, _, terminated, _ = play(snake, state, LEFT)
    assert text(snake, state)[2] == ".oo>..."
    assert not terminated


@pytest.mark.parametrize(("action", "head"), [(0, "^"), (1, ">"), (2, "v")])
def test_relative_actions_turn_left_go_straight_turn_right(action, head):
    snake = Snake(relative_actions=True)
    state, *_ = play(snake, start(snake), action)
    assert head in "".join(text(snake, state))
    assert snake.spaces["action_sizes"] == [3]


def test_eating_rewards_grows_at_the_tail_and_moves_the_food():
    snake = Snake(dim=7, distance_to_border=2)
    state = place_food(snake, start(snake), 3, 2)
    state, reward, terminated, _ = play(snake, state, RIGHT, food=0.999999)
    assert (reward, terminated, state["length"]) == (1.0, False, 4)
    assert text(snake, state)[2] == "ooo>..."
    assert text(snake, state)[6] == "......*"
    state, *_ = play(snake, state, DOWN)
    assert text(snake, state)[2] == ".ooo..."


@pytest.mark.parametrize(
    ("rank", "line", "expected"), [(0, 0, "*..."), (3, 0, "...*"), (5, 1, ".o>*"), (13, 3, "...*")]
)
def test_food_is_drawn_by_rank_among_the_free_cells(rank, line, expected):
    snake = Snake(dim=4, start_length=1, distance_to_border=1)
    state, *_ = play(snake, place_food(snake, start(snake), 2, 1), RIGHT, food=(rank + 0.5) / 14)
    assert text(snake, state)[line] == expected


def test_steps_after_an_end_leave_the_snake_in_place():
    snake = Snake(dim=12, start_length=5, distance_to_border=5)
    state, *_ = play(snake, place_food(snake, start(snake), 11, 11), DOWN, LEFT, UP)
    after, _, terminated, _ = play(snake, state, *(UP,) * 50)
    assert terminated
    assert all(torch.equal(state[name], after[name]) for name in state if name != "direction")


def test_food_is_uniform_over_free_cells_when_it_first_lies_and_when_it_moves():
    snake = Snake(dim=6, start_length=2, distance_to_border=1, observation="grid")
    state = place_food(snake, start(snake, rows=33_000), 2, 1)
    moved, *_ = snake.transition(state, torch.full((33_000,), RIGHT), torch.rand(33_000, 3))
    noise = torch.rand(34_000, 3) * torch.tensor([0.0, 0.0, 1.0])
    for game, free in ((snake.initial(noise), 34), (moved, 33)):
        counts = (snake.observation(game) == 3).double().sum(0)
        assert (counts > 0).sum() == free
        assert ((counts[counts > 0] - 1000) ** 2 / 1000).sum() < 70  # chi-square of 33, p = 0.0002


@pytest.mark.parametrize("moves", [(UP, UP, UP), (RIGHT,) * 5, (DOWN,) * 5, (DOWN, LEFT, LEFT, LEFT)])
def test_a_wall_ends_the_episode_and_the_snake_stays_inside(moves):
    snake = Snake(dim=7, distance_to_border=2)
    state = place_food(snake, start(snake), 6, 0)
    before, *outcome = play(snake, state, *moves[:-1])
    assert not outcome[1]
    after, reward, terminated, truncated = play(snake, before, moves[-1])
    assert (reward, terminated, truncated) == (-1.0, True, False)
    assert after["head"] == before["head"]
    assert after["length"] == 3


def test_its_own_body_ends_the_episode():
    snake = Snake(dim=12, start_length=5, distance_to_border=5)
    state = place_food(snake, start(snake), 11, 11)
    _, reward, terminated, _ = play(snake, state, DOWN, LEFT, UP)
    assert (reward, terminated) == (-1.0, True)


def test_the_cell_that_the_tail_would_leave_counts_as_body():
    snake = Snake(dim=12, start_length=4, distance_to_border=5)
    state = place_food(snake, start(snake), 11, 11)
    _, reward, terminated, _ = play(snake, state, DOWN, LEFT, UP)
    assert (reward, terminated) == (-1.0, True)


def test_the_cell_that_the_tail_has_left_is_free():
    snake = Snake(dim=12, start_length=3, distance_to_border=5)
    state = place_food(snake, start(snake), 11, 11)
    _, _, terminated, _ = play(snake, state, DOWN, LEFT, UP)
    assert not terminated


def test_a_full_board_ends_the_episode_with_the_last_food():
    snake = Snake(dim=2, start_length=1, distance_to_border=0)
    state = place_food(snake, start(snake), 1, 0)
    state, _, terminated, _ = play(snake, state, RIGHT, food=0.75)
    assert not terminated and text(snake, state) == ["o>", ".*"]
    state, _, terminated, _ = play(snake, state, DOWN)
    assert not terminated and text(snake, state) == ["oo", "*v"]
    state, reward, terminated, truncated = play(snake, state, LEFT)
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert text(snake, state) == ["oo", "<o"]
    assert snake.info(state)["full_board"] == 1


@pytest.mark.parametrize(("starvation", "steps"), [("length", 130), ("board", 200), (17, 17)])
def test_an_episode_is_truncated_by_starvation(starvation, steps):
    snake = Snake(starvation=starvation)
    state = place_food(snake, start(snake), 0, 0)
    circle = [(DOWN, LEFT, UP, RIGHT)[step % 4] for step in range(steps)]
    _, _, terminated, truncated = play(snake, state, *circle[:-1])
    assert (terminated, truncated, snake.min_truncation_step) == (False, False, steps)
    _, _, terminated, truncated = play(snake, state, *circle)
    assert (terminated, truncated) == (False, True)


@pytest.mark.parametrize(("starvation", "steps"), [("length", 140), ("board", 199), (17, 17)])
def test_food_puts_off_starvation_but_not_the_end_by_the_board(starvation, steps):
    snake = Snake(starvation=starvation)
    state, *_ = play(snake, place_food(snake, start(snake), 4, 3), RIGHT)
    circle = [(DOWN, DOWN, LEFT, LEFT, UP, UP, RIGHT, RIGHT)[step % 8] for step in range(steps)]
    state = place_food(snake, state, 0, 0)
    assert not play(snake, state, *circle[:-1])[3]
    assert play(snake, state, *circle)[3]


def test_info_reports_food_length_and_whether_the_board_is_full():
    snake = Snake(dim=7, distance_to_border=2)
    state, *_ = play(snake, place_food(snake, start(snake), 3, 2), RIGHT)
    shown = {name: value.tolist() for name, value in snake.info(state).items()}
    assert shown == {"food": [1], "snake_length": [4], "full_board": [0]}


@pytest.mark.parametrize("observation", ["planes", "grid", "features"])
def test_compiled_without_shortcuts_equals_eager(observation):
    snake = Snake(dim=6, start_length=2, distance_to_border=1, observation=observation, rewards="shaped")
    static = torch.compile(snake.transition, backend="eager", fullgraph=True)
    state = snake.initial(torch.rand(64, 3))
    for _ in range(60):
        action, noise = torch.randint(4, (64,)), torch.rand(64, 3)
        (state, *outcome), (other_state, *expected) = (
            snake.transition(state, action, noise),
            static(state, action, noise),
        )
        assert all(torch.equal(state[name], other_state[name]) for name in state)
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(outcome, expected, strict=True))
        first, ended = snake.initial(noise), outcome[1] | outcome[2]
        state = {
            name: torch.where(ended.view(-1, *[1] * (leaf.dim() - 1)), first[name], leaf)
            for name, leaf in state.items()
        }


def test_cells_agree_with_a_slow_restatement_of_the_rules():
    snake = Snake(dim=5, start_length=2, distance_to_border=1, observation="grid")
    state = start(snake)
    body, direction = [(1, 1), (0, 1)], RIGHT
    for _ in range(400):
        action, uniform = int(torch.randint(4, ())), float(torch.rand(()))
        food = divmod(int((snake.observation(state)[0] == 3).nonzero()), 5)[::-1]
        direction = direction if (action - direction) % 4 == 2 else action
        step = ((0, -1), (1, 0), (0, 1), (-1, 0))[direction]
        head = (body[0][0] + step[0], body[0][1] + step[1])
        dies = head in body or not (0 <= head[0] < 5 and 0 <= head[1] < 5)
        state, reward, terminated, _ = play(snake, state, action, food=uniform)
        assert bool(terminated) == dies and reward == (-1 if dies else head == food)
        if dies:
            state, body, direction = start(snake, food=uniform), [(1, 1), (0, 1)], RIGHT
            continue
        body = [head, *(body if head == food else body[:-1])]
        grid = snake.observation(state)[0].view(5, 5)
        assert {(x, y) for y, x in ((grid == 1) | (grid == 2)).nonzero().tolist()} == set(body)
        assert divmod(int(state["tail"]), 5)[::-1] == body[-1]


def digest(**arguments: Any) -> str:
    """What 64 boards showed, paid and ended in 200 steps of a player that is often greedy, as one number."""
    snake, view = Snake(**arguments), Snake(**(arguments | {"observation": "features"}))
    generator, seen = np.random.default_rng(0), hashlib.sha256()
    state = snake.initial(torch.from_numpy(generator.random((64, 3), np.float32)))
    for _ in range(200):
        noise = torch.from_numpy(generator.random((64, 4), np.float32))
        action = greedy_and_safe(view.observation(state), noise[:, 3]) if noise[0, 3] > 0.2 else noise[:, 3] * 3
        state, *outcome = snake.transition(state, action.long() % snake.spaces["action_sizes"][0], noise[:, :3])
        for shown in (snake.observation(state), *outcome):
            seen.update((shown * 1000).round().int().numpy().tobytes())
        ended, first = outcome[1] | outcome[2], snake.initial(noise[:, :3])
        rows = ended.nonzero().squeeze(1)
        state = {name: leaf.index_copy(0, rows, first[name][rows]) for name, leaf in state.items()}
    return seen.hexdigest()[:16]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"observation": "features"}, "9c17a03fa1f65458"),
        ({"observation": "grid", "dim": 5, "start_length": 2, "distance_to_border": 1}, "ac5c2471a8fdf639"),
        ({"observation": "features", "starvation": 17, "relative_actions": True}, "377273441dfa5196"),
        (
            {"observation": "grid", "starvation": "board", "rewards": {"closer": 0.1, "danger": -0.05, "length": 0.01}},
            "3b5f0e93004513ed",
        ),
    ],
)
def test_the_game_is_the_one_it_always_was(arguments: dict[str, Any], expected: str):
    assert digest(**arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"dim": 7, "distance_to_border": 3}, "choose distance_to_border from 0 to 2"),
        ({"distance_to_border": -1}, "choose distance_to_border from 0 to 4"),
        ({"dim": 1, "distance_to_border": 0}, "dim at least 2"),
        ({"start_length": 5}, "choose start_length from 1 to distance_to_border \\+ 1 = 4"),
        ({"start_length": 0}, "choose start_length from 1"),
        ({"observation": "pixels"}, "choose planes, grid or features"),
        ({"starvation": "never"}, "choose length, board or a number of steps"),
        ({"starvation": 0}, "choose at least 1"),
        ({"dim": 100}, "choose a smaller dim or starvation"),
    ],
)
def test_an_argument_out_of_range_is_one_sentence(arguments: dict[str, Any], sentence: str):
    with pytest.raises(ConfigurationError, match=sentence) as error:
        Snake(**arguments)
    assert str(error.value).endswith(".") and "\n" not in str(error.value)


def test_random_play_eats_about_a_seventh():
    food = run(Snake(observation="features"), 4000, 4000, at_random)
    assert food.mean() == pytest.approx(0.15, abs=0.03)  # four standard errors of 4,000 episodes


def test_a_greedy_safe_player_eats_about_twenty():
    food = run(Snake(observation="features"), 512, 512, greedy_and_safe)
    assert food.mean() == pytest.approx(19.9, abs=1.5)
