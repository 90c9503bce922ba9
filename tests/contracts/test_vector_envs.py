"""What holds of every vector environment, whoever steps it: one suite, each kind of `tests.support.vector_backends`.

What is particular to one kind is tested beside it, in tests/datamodules/vector and tests/datamodules/worker_pool.
"""

import multiprocessing
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from datamodules.core.protocols import VectorEnv
from tests.support.counting_env import Counting, Echo, Masking, SometimesMasking, copied, sometimes_masked, transitions
from tests.support.vector_backends import BACKENDS

ROWS = 3
NOTHING = torch.zeros(ROWS, dtype=torch.int64)
GYMNASIUM = [name for name, backend in BACKENDS.items() if backend.gymnasium]

Make = Callable[..., VectorEnv]


@pytest.fixture
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes the vector environment of a backend from one maker a row, and closes it in the end."""
    made: list[VectorEnv] = []

    def make_envs(backend: str, *makers: Callable[[], gym.Env]) -> VectorEnv:
        made.append(BACKENDS[backend].make(list(makers)))
        return made[-1]

    yield make_envs
    for envs in made:
        envs.close()
    assert multiprocessing.active_children() == []


def counting(length: int = 4, end: str = "terminated") -> list[Any]:
    return [partial(Counting, length=length, end=end)] * ROWS


@pytest.mark.parametrize("backend", BACKENDS)
def test_reset_and_step_give_tensors_of_the_promised_shapes_and_types(make: Make, backend: str) -> None:
    envs = make(backend, *counting())
    obs, masks = envs.reset(0)
    step = envs.step(NOTHING)

    shape, flags = (ROWS, *envs.spaces["obs_shape"]), (step.terminated, step.truncated, step.valid)
    assert envs.num_envs == ROWS and envs.spaces["num_agents"] == 1 and envs.device == torch.device("cpu")
    assert obs.shape == step.obs.shape == shape and obs.dtype == step.obs.dtype == step.reward.dtype == torch.float32
    assert all(flag.dtype == torch.bool and flag.shape == (ROWS,) for flag in flags) and step.reward.shape == (ROWS,)
    assert all(name.endswith("_mask") for name in masks)


@pytest.mark.parametrize("end", ["terminated", "truncated", "both"])
@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_row_yields_whole_episodes_in_order(make: Make, backend: str, length: int, end: str) -> None:
    rows = transitions(make(backend, *counting(length, end)), 12)

    for row in rows:
        assert len(row) >= 6
        for number, (obs, reward, terminated, truncated, following) in enumerate(row):
            count, last = number % length, number % length == length - 1
            assert (obs[-2], reward) == (count, count + 1)
            assert (terminated, truncated) == (last and end != "truncated", last and end != "terminated")
            assert following[-2:-1] == ([] if terminated and not truncated else [count + 1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_that_only_begins_an_episode_is_not_valid_and_brings_nothing(make: Make, backend: str) -> None:
    envs = make(backend, *counting(2, "both"))
    envs.reset(0)
    steps = [copied(envs.step(NOTHING)) for _ in range(9)]

    for before, step in zip([None, *steps], steps, strict=False):
        ended = torch.zeros(ROWS, dtype=torch.bool) if before is None else before.terminated | before.truncated
        assert not step.valid.logical_not().any() or (envs.has_invalid_steps and ended[~step.valid].all())
        assert not step.reward[~step.valid].any()
        assert not (step.terminated | step.truncated)[~step.valid].any()
        assert (step.obs[:, -2][~step.valid] == 0).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_truncated_rows_have_a_last_observation_unless_all_are_wanted(make: Make, backend: str) -> None:
    for end in ("truncated", "terminated"):
        for wanted in (False, True):
            envs = make(backend, *counting(2, end))
            envs.return_all_final_obs = wanted
            envs.reset(0)
            assert envs.step(NOTHING).final_obs is None
            final = envs.step(NOTHING).final_obs
            assert (final is not None) == (wanted or end == "truncated")
            assert final is None or final[:, -2].tolist() == [2] * ROWS


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_seed_repeats_the_episodes_of_every_row_and_no_seed_brings_others(make: Make, backend: str) -> None:
    envs = make(backend, *counting(3))
    first, again, other = (transitions(envs, 7, seed=seed) for seed in (7, 7, 8))
    later = envs.reset()[0][:, -1].tolist()

    draws = {row[0][0][-1] for row in first}
    assert first == again != other
    assert len(draws) == ROWS and not draws & {*later}


@pytest.mark.parametrize("end", ["terminated", "truncated"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_limit_truncates_episodes_with_their_true_last_observation(make: Make, backend: str, end: str) -> None:
    envs = make(backend, *counting(10, end))
    envs.limit(3)

    for row in transitions(envs, 12):
        assert [truncated for *_, truncated, _ in row] == [number % 3 == 2 for number in range(len(row))]
        assert not any(terminated for _, _, terminated, *_ in row)
        assert [following[-2] for *_, following in row] == [number % 3 + 1 for number in range(len(row))]


@pytest.mark.parametrize("backend", BACKENDS)
def test_masks_belong_to_the_observation(make: Make, backend: str) -> None:
    envs = make(backend, *[partial(Masking, length=3, end="terminated")] * ROWS)
    obs, masks = envs.reset(0)
    for _ in range(8):
        assert masks["action_mask"].dtype == torch.bool and masks["action_mask"].shape == (ROWS, 2)
        assert masks["action_mask"][:, 0].tolist() == (obs[:, -2] % 2 == 0).tolist()
        obs, *_, masks = envs.step(NOTHING)


@pytest.mark.parametrize("backend", GYMNASIUM)
def test_a_mask_that_comes_only_sometimes_holds_for_its_own_row_and_step(make: Make, backend: str) -> None:
    sometimes_masked(make(backend, *[partial(SometimesMasking, length) for length in (3, 4)]))


@pytest.mark.parametrize("backend", GYMNASIUM)
def test_discrete_observations_become_one_hot(make: Make, backend: str) -> None:
    envs = make(backend, *[partial(gym.make, "FrozenLake-v1")] * 2)

    assert envs.reset(0)[0].tolist() == torch.eye(16)[[0, 0]].tolist()


@pytest.mark.parametrize(
    ("space", "action", "expected"),
    [
        (Discrete(3, start=2), torch.tensor([0, 1]), [[2], [3]]),
        (MultiDiscrete([2, 3], start=[1, 5]), torch.tensor([[1, 2], [0, 0]]), [[2, 7], [1, 5]]),
        (MultiBinary(2), torch.tensor([[1, 0], [0, 1]]), [[1, 0], [0, 1]]),
        (Box(-1, 2, (1, 2), np.float64), torch.tensor([[-3.0, 3.0], [0.25, 1]]), [[-1, 2], [0.25, 1]]),
    ],
    ids=["discrete", "multidiscrete", "binary", "box"],
)
@pytest.mark.parametrize("backend", GYMNASIUM)
def test_actions_reach_the_environment_in_its_own_space_and_are_its_to_keep(
    make: Make, backend: str, space: gym.Space, action: torch.Tensor, expected: list[list[float]]
) -> None:
    envs = make(backend, *[partial(Echo, space)] * 2)
    envs.reset(0)
    envs.step(action)

    assert envs.step(torch.zeros_like(action)).obs.tolist() == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_state_continues_exactly_or_there_is_none(make: Make, backend: str) -> None:
    envs, restored = make(backend, *counting(3)), make(backend, *counting(3))
    envs.reset(0)
    envs.step(NOTHING)

    state = envs.state_dict()

    assert bool(state) == (not BACKENDS[backend].gymnasium)
    if state:
        restored.load_state_dict(state)
        assert all(torch.equal(envs.step(NOTHING).obs, restored.step(NOTHING).obs) for _ in range(6))
