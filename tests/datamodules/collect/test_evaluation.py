"""Whole episodes: unbiased toward short ones, the same every time, and never waited for without end."""

from contextlib import closing
from functools import partial
from typing import Any, ClassVar

import gymnasium as gym
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor

from datamodules.collect.evaluation import EvaluationDataset
from datamodules.core.protocols import VectorEnv
from datamodules.core.types import PolicyInput, PolicyOutput, SpaceSpec, State
from datamodules.vector.async_vector_env import SubprocVectorEnv
from datamodules.vector.gymnasium_adapter import GymnasiumVectorAdapter
from datamodules.vector.make_env import make_vector_env
from datamodules.vector.sync_vector_env import SerialVectorEnv
from datamodules.worker_pool.vector_env import WorkerPoolVectorEnv
from tests.support.counting_env import Counting

CPU = torch.device("cpu")


class Lengths:
    """Episodes of 2, 4, 6 ... steps by row, or endless ones; reward 1 a step."""

    spaces = SpaceSpec(
        obs_shape=(1,), obs_dtype="float32", action_type="discrete", action_sizes=[2], action_low=[], action_high=[],
        action_start=[0], num_agents=1,
    )  # fmt: skip
    noise_size, episode_stat_keys, min_truncation_step = 1, ("steps",), None

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

    def act(self, inputs: PolicyInput, *_: Any, **__: Any) -> tuple[PolicyOutput, State]:
        return PolicyOutput(torch.zeros(len(inputs.obs), dtype=torch.int64), {}), inputs.state


def dataset(episodes: int, rows: int = 4, endless: bool = False, **settings: Any) -> EvaluationDataset:
    envs = make_vector_env(f"{__name__}.Lengths", rows, env_kwargs={"endless": endless})
    return EvaluationDataset(envs, Idle(), episodes, seed=1, **settings)


def test_every_row_plays_the_same_number_of_episodes_so_short_ones_are_not_favoured() -> None:
    played = dataset(episodes=4, rows=1).run()
    assert played.episode_return.tolist() == played.length.tolist() == [2, 2, 2, 2]
    mixed = dataset(episodes=4).run()
    assert sorted(mixed.episode_return.tolist()) == [2, 4, 6, 8]
    assert sorted(mixed.info["steps"].tolist()) == [2, 4, 6, 8]


def test_an_endless_episode_is_cut_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="8 of 8 evaluation episodes were truncated after 50 steps"):
        played = dataset(episodes=8, endless=True, max_steps=50).run()
    assert played.length.tolist() == [50] * 8


def test_a_recording_holds_episodes_that_were_cut_as_truncated() -> None:
    with pytest.warns(UserWarning, match="were truncated after 5 steps"):
        played = dataset(episodes=8, endless=True, max_steps=5, record=True).run()
    assert [len(episode["reward"]) for episode in played.trajectories] == [5] * 8
    assert all(episode["obs"].flatten().tolist() == [0, 1, 2, 3, 4, 5] for episode in played.trajectories)


class EndlessVector(gym.vector.VectorEnv):
    """The same as a vector environment that cannot reset rows alone."""

    metadata: ClassVar = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int, mode: AutoresetMode = AutoresetMode.NEXT_STEP):
        lengths = [10**9 if row == 0 else 5 for row in range(num_envs)]
        self.rows = SyncVectorEnv([partial(Counting, length) for length in lengths], autoreset_mode=mode)
        self.metadata = {"autoreset_mode": mode}
        self.num_envs, self.single_action_space = num_envs, self.rows.single_action_space
        self.single_observation_space = self.rows.single_observation_space

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self.rows.reset(seed=seed)

    def step(self, actions: Any) -> Any:
        return self.rows.step(actions)


gym.register("EndlessVector-v0", vector_entry_point=EndlessVector)
LENGTHS = [5] * 12 + [20] * 4


def lengths(envs: VectorEnv, **settings: Any) -> list[int]:
    with closing(envs), pytest.warns(UserWarning, match="4 of 16 evaluation episodes were truncated after 20 steps"):
        twice = EvaluationDataset(envs, Idle(), 16, seed=1, max_steps=20, **settings)
        first, second = twice.run(), twice.run()
    assert torch.equal(first.episode_return, second.episode_return)
    return sorted(first.length.tolist())


@pytest.mark.filterwarnings("ignore:.*were truncated after 5 steps")
def test_on_device_environments_are_cut_one_episode_at_a_time() -> None:
    played = dataset(episodes=16, rows=4, max_steps=5).run()
    assert len(played.length) == 16
    assert set(played.length.tolist()) == {2, 4, 5}


@pytest.mark.parametrize("backend", ["sync", "async", "pool"])
def test_every_backend_cuts_each_episode_and_plays_the_quota(backend: str) -> None:
    makers = [partial(Counting, length) for length in (10**9, 5, 5, 5)]
    if backend == "pool":
        assert lengths(WorkerPoolVectorEnv(makers, num_workers=1, device=CPU)) == LENGTHS
    else:
        envs = SerialVectorEnv(makers) if backend == "sync" else SubprocVectorEnv(makers, name="Counting")
        assert lengths(GymnasiumVectorAdapter(envs, device=CPU)) == LENGTHS


@pytest.mark.parametrize("record", [False, True])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_every_autoreset_mode_cuts_each_episode_and_plays_the_quota(mode: AutoresetMode, record: bool) -> None:
    makers = [partial(Counting, length) for length in (10**9, 5, 5, 5)]
    assert lengths(GymnasiumVectorAdapter(SerialVectorEnv(makers, mode), device=CPU), record=record) == LENGTHS


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_vector_environment_that_cannot_reset_rows_alone_is_cut_as_well(mode: AutoresetMode) -> None:
    envs = make_vector_env("EndlessVector-v0", 4, backend="vector", env_kwargs={"mode": mode})
    assert lengths(envs) == LENGTHS


def test_cartpoles_own_vector_environment_is_cut_before_its_own_limit() -> None:
    envs = make_vector_env("CartPole-v1", 4, backend="vector")
    with closing(envs), pytest.warns(UserWarning, match="were truncated after 5 steps"):
        assert EvaluationDataset(envs, Idle(), 12, seed=1, max_steps=5).run().length.tolist() == [5] * 12


def test_an_episode_that_is_meant_to_be_cut_is_recorded_as_truncated_there() -> None:
    cut = dataset(episodes=4, endless=True, max_steps=5, record=True, cut=True).run().trajectories
    assert [len(episode["obs"]) for episode in cut] == [6] * 4
    assert all(episode["truncated"].nonzero().tolist() == [[4]] for episode in cut)
    whole = dataset(episodes=4, max_steps=5, record=True, cut=True).run().trajectories
    assert sorted(len(episode["reward"]) for episode in whole) == [2, 4, 5, 5]


def test_recorded_episodes_hold_every_true_last_observation() -> None:
    episode = dataset(episodes=1, rows=1, record=True).run().trajectories[0]
    assert episode["obs"].flatten().tolist() == [0, 1, 2]
    assert episode["terminated"].tolist() == [False, True]


def test_an_interrupted_evaluation_ends_at_once_without_an_episode() -> None:
    endless, asked = dataset(episodes=4, endless=True, record=True), iter([False, False, True])
    endless.should_stop = lambda: next(asked)

    (episodes,) = list(endless)

    assert len(episodes.episode_return) == len(episodes.length) == len(episodes.info["steps"]) == 0
    assert episodes.trajectories == []
