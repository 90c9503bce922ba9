"""Scalars, whole numbers and constant parts, from the environment to the policy and back, whatever steps the copies."""

from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode

from datamodules.replay import ReplayDataModule
from datamodules.vector.gymnasium_adapter import GymnasiumVectorAdapter
from datamodules.vector.make_env import make_vector_env, probe_spaces
from datamodules.vector.sync_vector_env import SerialVectorEnv
from modules.sac.sac import SAC
from tests.support.small_runs import trainer

HERE = __name__


class Thermostat(gym.Env):
    """Shows a temperature and takes a change of it, both scalars; truncated after 3 steps."""

    observation_space = Box(-100, 100, (), np.float32)
    action_space = Box(-1, 1, (), np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.temperature, self.steps = np.float32(20), 0
        return self.temperature, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        assert np.shape(action) == ()
        self.temperature, self.steps = np.float32(self.temperature + action), self.steps + 1
        return self.temperature, 1.0, False, self.steps == 3, {}


class Gears(gym.Env):
    """Takes a gear from 0 to 4 and a second number that is always 7; pays for gear 4 only."""

    observation_space = Box(-1, 1, (2,), np.float32)
    action_space = Box(np.array([0, 7]), np.array([4, 7]), dtype=np.int64)
    gears: ClassVar[set[int]] = set()

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        assert action.dtype == np.int64 and action[1] == 7
        self.gears.add(int(action[0]))
        self.steps += 1
        return np.zeros(2, np.float32), float(action[0] == 4), False, self.steps == 8, {}


@pytest.mark.parametrize("backend", ["sync", "async", "pool"])
def test_scalar_observations_and_actions_pass_through_every_backend(backend: str) -> None:
    env = f"{HERE}.Thermostat"
    assert probe_spaces(env)["obs_shape"] == (1,)
    with closing(make_vector_env(env, 2, backend=backend)) as envs:
        assert envs.reset(0)[0].tolist() == [[20], [20]]
        for warmer in (0.5, 1.5):
            step = envs.step(torch.full((2, 1), warmer))
        assert step.obs.tolist() == [[21.5], [21.5]]
        step = envs.step(torch.zeros(2, 1))
        assert (step.final_obs.tolist(), step.obs.tolist()) == ([[21.5]] * 2, [[20.0]] * 2)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_scalar_observations_keep_their_last_one_in_every_mode(mode: AutoresetMode) -> None:
    envs = GymnasiumVectorAdapter(SerialVectorEnv([Thermostat] * 2, mode), device=torch.device("cpu"))
    envs.reset(0)
    *_, step = [envs.step(torch.ones(2, 1)) for _ in range(3)]
    assert step.final_obs.tolist() == [[23.0]] * 2


def test_sac_learns_with_whole_numbers_and_a_constant_part(tmp_path: Path) -> None:
    data = ReplayDataModule(f"{HERE}.Gears", num_envs=2, total_env_steps=400, learning_starts=16, batch_size=16,
                      replay_ratio=8, eval_episodes=2)  # fmt: skip
    model = SAC(data.spaces)
    Gears.gears.clear()
    trainer(tmp_path).fit(model, datamodule=data)
    assert Gears.gears == {0, 1, 2, 3, 4}
    assert all(parameter.isfinite().all() for parameter in model.parameters())
