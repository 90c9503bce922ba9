"""Vector environments that have no single twin."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


class Counters(VectorEnv):
    """Shows how many steps an episode of four has had; pays the action."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int):
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = Box(0, 9, (1,), np.float32), Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.count = np.zeros(num_envs, np.int64)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict]:
        self.count[:] = 0
        return self.shown(), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        self.count += 1
        over, infos = self.count >= 4, {}
        if over.any():
            infos["final_obs"] = np.array([*self.shown(), None], dtype=object)[:-1]
            self.count[over] = 0
        return self.shown(), actions.astype(np.float64), over, np.zeros_like(over), infos

    def shown(self) -> np.ndarray:
        return self.count[:, None].astype(np.float32)


class ThreeCounters(Counters):
    """Has three environments, whatever is asked."""

    def __init__(self, bonus: float = 0.0) -> None:
        super().__init__(3)
        self.bonus = bonus


class TeamCounters(Counters):
    """Two agents an environment: rows of agents; agent 1 ends after two of the four steps."""

    num_agents = 2

    def __init__(self, num_envs: int, autoreset: str = "SameStep"):
        super().__init__(num_envs)
        self.metadata = {"autoreset_mode": AutoresetMode(autoreset)}
        self.over = np.zeros(num_envs, np.bool_)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict]:
        chosen = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))
        self.count[chosen], self.over[chosen] = 0, False
        return self.shown(), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        fresh = self.over.copy() if self.mode is AutoresetMode.NEXT_STEP else np.zeros_like(self.over)
        valid = np.stack([~fresh, ~fresh & (self.count < 2)], 1)
        self.count = np.where(fresh, 0, self.count + 1)
        ends = np.stack([self.count == 4, self.count == 2], 1) & valid
        self.over = self.count == 4
        last, infos = self.shown(), {"valid": valid.ravel()}
        if self.mode is AutoresetMode.SAME_STEP and self.over.any():
            infos["final_obs"] = np.array([*last, None], dtype=object)[:-1]
            self.count[self.over] = 0
        rewards = (actions * valid.ravel()).astype(np.float64)
        return self.shown(), rewards, ends.ravel(), np.zeros(2 * self.num_envs, np.bool_), infos

    @property
    def mode(self) -> AutoresetMode:
        return self.metadata["autoreset_mode"]

    def shown(self) -> np.ndarray:
        return np.repeat(self.count, 2)[:, None].astype(np.float32)


gym.register("test/Counters-v0", vector_entry_point=Counters)
