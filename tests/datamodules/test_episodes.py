"""Whole episodes: unbiased toward short ones, the same every time, and never waited for without end."""

from typing import Any

import pytest
import torch
from torch import Tensor

from datamodules.episodes import EpisodeDataset
from datamodules.types import Decision, Spaces, State
from datamodules.vector import make_envs


class Lengths:
    """Episodes of 2, 4, 6 ... steps by row, or endless ones; reward 1 a step."""

    spaces = Spaces(
        obs_shape=(1,), obs_dtype="float32", action_kind="discrete", action_sizes=[2], action_low=[], action_high=[],
        action_start=[0], agents=1,
    )  # fmt: skip
    noise_size, episode_keys, shortest_truncation = 1, ("steps",), None

    def __init__(self, endless: bool = False):
        self.endless = endless

    def initial(self, noise: Tensor) -> State:
        return {"steps": torch.zeros(len(noise)), "length": 2.0 * torch.arange(1, len(noise) + 1)}

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        steps = state["steps"] + 1
        over = (steps >= state["length"]) & (not self.endless)
        return {**state, "steps": steps}, torch.ones(len(steps)), over, torch.zeros_like(over)

    def observation(self, state: State) -> Tensor:
        return state["steps"].unsqueeze(1)

    def info(self, state: State) -> dict[str, Tensor]:
        return {"steps": state["steps"]}


class Idle:
    """Always action 0."""

    def initial_state(self, batch: int) -> State:
        return {}

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return torch.zeros(shape)

    def act(self, obs: Tensor, state: State, reset: Tensor, **_: Any) -> tuple[Decision, State]:
        return Decision(torch.zeros(len(obs), dtype=torch.int64), {}), state


def dataset(episodes: int, rows: int = 4, endless: bool = False, **settings: Any) -> EpisodeDataset:
    envs = make_envs(f"{__name__}.Lengths", rows, env_kwargs={"endless": endless})
    return EpisodeDataset(envs, Idle(), episodes, seed=1, **settings)


def test_every_row_plays_the_same_number_of_episodes_so_short_ones_are_not_favoured() -> None:
    played = dataset(episodes=4, rows=1).play()
    assert played.return_.tolist() == played.length.tolist() == [2, 2, 2, 2]
    mixed = dataset(episodes=4).play()
    assert sorted(mixed.return_.tolist()) == [2, 4, 6, 8]
    assert sorted(mixed.info["steps"].tolist()) == [2, 4, 6, 8]


def test_an_endless_episode_is_cut_and_said_aloud() -> None:
    with pytest.warns(UserWarning, match="4 of 4 evaluation rows were still playing after 50 steps"):
        played = dataset(episodes=4, endless=True, max_steps=50).play()
    assert played.length.tolist() == [50] * 4


def test_a_recording_that_was_cut_holds_no_episode() -> None:
    with pytest.warns(UserWarning, match="still playing"):
        assert dataset(episodes=4, endless=True, max_steps=5, record=True).play().trajectories == []


def test_an_episode_that_is_meant_to_be_cut_is_recorded_as_truncated_there() -> None:
    cut = dataset(episodes=4, endless=True, max_steps=5, record=True, cut=True).play().trajectories
    assert [len(episode["obs"]) for episode in cut] == [6] * 4
    assert all(episode["truncated"].nonzero().tolist() == [[4]] for episode in cut)
    whole = dataset(episodes=4, max_steps=5, record=True, cut=True).play().trajectories
    assert sorted(len(episode["reward"]) for episode in whole) == [2, 4, 5, 5]


def test_recorded_episodes_hold_every_true_last_observation() -> None:
    episode = dataset(episodes=1, rows=1, record=True).play().trajectories[0]
    assert episode["obs"].flatten().tolist() == [0, 1, 2]
    assert episode["terminated"].tolist() == [False, True]


def test_an_interrupted_evaluation_ends_at_once_without_an_episode() -> None:
    endless, asked = dataset(episodes=4, endless=True, record=True), iter([False, False, True])
    endless.interrupted = lambda: next(asked)

    (episodes,) = list(endless)

    assert len(episodes.return_) == len(episodes.length) == len(episodes.info["steps"]) == 0
    assert episodes.trajectories == []
