from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from datamodules.vector.gymnasium_adapter import GymnasiumVectorAdapter
from datamodules.vector.sync_vector_env import SerialVectorEnv
from tests.support.autoreset_contract import stepped
from tests.support.counting_env import Counting, SometimesMasking, copied, sometimes_masked, transitions

CPU = torch.device("cpu")
MODES = list(AutoresetMode)
ACTION = torch.zeros(2, dtype=torch.int64)
PLACED = ("obs", "reward", "terminated", "truncated", "valid")


def adapter(
    mode: AutoresetMode = AutoresetMode.SAME_STEP, num_envs: int = 2, env: type = Counting, **kwargs
) -> GymnasiumVectorAdapter:
    return GymnasiumVectorAdapter(SerialVectorEnv([partial(env, **kwargs)] * num_envs, mode), device=CPU)


def test_next_step_mode_yields_20_transitions_not_24():
    envs = adapter(AutoresetMode.NEXT_STEP, length=4)
    envs.reset(0)
    steps = [copied(envs.step(torch.zeros(2, dtype=torch.int64))) for _ in range(12)]
    assert envs.has_invalid_steps
    assert sum(int(step.valid.sum()) for step in steps) == 20


def test_one_step_episodes_in_next_step_mode_are_half_phantoms():
    envs = adapter(AutoresetMode.NEXT_STEP, length=1)
    envs.reset(0)
    valid = torch.stack([envs.step(torch.zeros(2, dtype=torch.int64)).valid.clone() for _ in range(12)])
    assert valid[::2].all()
    assert not valid[1::2].any()


def test_a_phantom_brings_only_the_first_observation():
    envs = adapter(AutoresetMode.NEXT_STEP, length=1, end="both")
    envs.reset(0)
    envs.step(torch.zeros(2, dtype=torch.int64))
    phantom = envs.step(torch.zeros(2, dtype=torch.int64))
    assert phantom.obs[:, :2].tolist() == [[1, 0], [1, 0]]
    assert not phantom.reward.any()
    assert not (phantom.terminated | phantom.truncated | phantom.valid).any()
    assert phantom.final_obs is None


@pytest.mark.parametrize("end", ["terminated", "truncated", "both"])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_all_autoreset_modes_give_the_same_transitions(end, length):
    streams = [transitions(adapter(mode, 3, length=length, end=end), 24) for mode in MODES]
    for rows in zip(*streams, strict=True):
        shortest = min(map(len, rows))
        assert shortest >= 12
        assert rows[0][:shortest] == rows[1][:shortest] == rows[2][:shortest]


@pytest.mark.parametrize("mode", MODES)
def test_truncated_rows_keep_their_true_last_observation(mode):
    makers = [partial(Counting, length=2, end="truncated"), partial(Counting, length=3), partial(Counting, length=9)]
    envs = GymnasiumVectorAdapter(SerialVectorEnv(makers, mode), device=CPU)
    envs.reset(0)
    assert envs.step(torch.zeros(3, dtype=torch.int64)).final_obs is None
    step = envs.step(torch.zeros(3, dtype=torch.int64))
    assert step.final_obs.shape == (3, 3)
    assert step.final_obs[0, :2].tolist() == [0, 2]
    assert step.truncated.tolist() == [True, False, False]
    assert envs.step(torch.zeros(3, dtype=torch.int64)).final_obs is None


def test_same_step_mode_shows_the_next_episode_at_once():
    envs = adapter(AutoresetMode.SAME_STEP, length=1, end="truncated")
    envs.reset(0)
    step = envs.step(torch.zeros(2, dtype=torch.int64))
    assert step.obs[:, :2].tolist() == [[1, 0], [1, 0]]
    assert step.final_obs[:, :2].tolist() == [[0, 1], [0, 1]]
    assert step.valid.all()


@pytest.mark.parametrize("mode", MODES)
def test_an_environment_that_reuses_its_array_keeps_its_last_observation(mode):
    expected, reused = (
        transitions(adapter(mode, length=3, end="truncated", reuse=reuse), 12) for reuse in (False, True)
    )
    assert expected == reused


def test_missing_autoreset_metadata_means_next_step():
    vector = SyncVectorEnv([partial(Counting, length=1)])
    del vector.metadata["autoreset_mode"]
    assert GymnasiumVectorAdapter(vector, device=CPU).mode is AutoresetMode.NEXT_STEP


def test_the_first_reset_is_seeded_without_being_asked():
    one, two = (
        GymnasiumVectorAdapter(SerialVectorEnv([Counting] * 2), device=CPU, seed=5).reset()[0] for _ in range(2)
    )
    assert torch.equal(one, two)


@pytest.mark.parametrize(
    ("space", "action", "expected"),
    [
        (Discrete(1, start=2), torch.tensor([0]), 2),
        (MultiDiscrete([2, 3], start=[1, 5]), torch.tensor([[1, 2]]), [2, 7]),
        (MultiBinary(2), torch.tensor([[1, 0]]), [1, 0]),
        (Box(-1, 2, (2,)), torch.tensor([[-3.0, 3.0]]), [-1, 2]),
        (Box(-1, 1, (1, 2), np.float64), torch.tensor([[0.25, 3.0]]), [[0.25, 1]]),
    ],
)
def test_actions_reach_the_environment_in_its_own_space(space, action, expected):
    envs = adapter(num_envs=1, action_space=space)
    envs.reset(0)
    envs.step(action)
    received = envs.envs.envs[0].actions[0]
    assert np.asarray(received).tolist() == expected
    assert space.contains(received)


def test_discrete_actions_have_shape_n():
    received = []

    class Recording(SerialVectorEnv):
        def step(self, actions):
            received.append(actions)
            return super().step(actions)

    envs = GymnasiumVectorAdapter(Recording([Counting] * 3), device=CPU)
    envs.reset(0)
    envs.step(torch.zeros(3, dtype=torch.int64))
    assert received[0].shape == (3,)
    assert received[0].dtype == np.int64


def test_an_environment_may_keep_the_action_it_was_given():
    envs = adapter(num_envs=1, action_space=Box(-1, 1, (1,)))
    envs.reset(0)
    for value in (0.25, 0.5):
        envs.step(torch.tensor([[value]]))
    assert [float(action[0]) for action in envs.envs.envs[0].actions] == [0.25, 0.5]


def test_mixed_and_ragged_infos_never_stop_training():
    class Talking(Counting):
        def info(self):
            talk = [{"x": 1, "list": np.zeros(2)}, {"x": 1.5, "list": np.zeros(3)}, {"list": "none", "x": None}]
            return talk[int(self.np_random.integers(3))]

    envs = adapter(num_envs=8, env=Talking, length=2)
    assert len(transitions(envs, 20)[0]) == 20
    assert envs.step(torch.zeros(8, dtype=torch.int64)).info == {}


class Whole(gym.vector.VectorEnv):
    """A vector environment that cannot reset rows alone."""

    def __init__(self, make, num_envs: int):
        self.rows = SyncVectorEnv([make] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.num_envs, self.single_action_space = num_envs, self.rows.single_action_space
        self.single_observation_space = self.rows.single_observation_space

    def reset(self, *, seed=None, options=None):
        return self.rows.reset(seed=seed)

    def step(self, actions):
        return self.rows.step(actions)


@pytest.mark.parametrize("mode", [*MODES, "whole"])
def test_masks_after_a_cut_are_those_of_the_episode_that_begins(mode):
    make = partial(SometimesMasking, 10**9)
    envs = Whole(make, 2) if mode == "whole" else SerialVectorEnv([make] * 2, mode)
    adapted = GymnasiumVectorAdapter(envs, device=CPU, seed=1, make_one=lambda: Whole(make, 1))
    adapted.limit(3)
    sometimes_masked(adapted)
    assert adapted.step(ACTION).obs[:, 1].tolist() == [2, 2]


def test_cartpole_s_own_vector_environment_agrees_on_what_is_valid():
    envs = GymnasiumVectorAdapter(gym.make_vec("CartPole-v1", 4), device=CPU)
    assert sum(int(ended.sum()) for _, ended in stepped(envs, 200)) > 0


@pytest.mark.parametrize("mode", MODES)
def test_steps_written_to_a_place_are_those_of_the_environments_own_memory(mode):
    kept, placed = (adapter(mode, length=3, end="both") for _ in range(2))
    for envs in (kept, placed):
        envs.reset(0)
    first = copied(kept.step(ACTION))
    kept.reset(0)
    rows = [{name: torch.ones_like(getattr(first, name)) for name in PLACED} for _ in range(8)]

    places = [placed.step_buffers(**row) for row in rows]
    steps = [(copied(kept.step(ACTION)), placed.step(ACTION, place=place)) for place in places]

    for (step, answer), row in zip(steps, rows, strict=True):
        assert all(torch.equal(row[name], getattr(step, name)) for name in PLACED)
        assert answer.obs.data_ptr() == row["obs"].data_ptr()
        assert (step.final_obs is None) == (answer.final_obs is None)
    begins = [step.terminated | step.truncated | ~step.valid for step, _ in steps]
    assert [place.episode_start.tolist() for place in places] == torch.stack(begins).tolist()


def test_state_dict_is_empty_because_nothing_can_be_restored():
    assert adapter().state_dict() == {}
