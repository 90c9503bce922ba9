"""MultiAgentVectorAdapter: a Gymnasium vector environment of several agents as a VectorEnv."""

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.seeding import env_seeds
from datamodules.core.types import Obs, VectorStep
from datamodules.env_interface.env_errors import require_shape
from datamodules.env_interface.obs_parts import assign_rows, map_parts
from datamodules.env_interface.spaces import Array
from datamodules.multi_agent.parallel_vector_env import ParallelVectorEnv
from datamodules.vector.gymnasium_adapter import GymnasiumVectorAdapter, HostArrays, StepBuffers


class MultiAgentVectorAdapter(GymnasiumVectorAdapter):
    """VectorEnv of a `gymnasium.vector.VectorEnv` with `num_agents` rows per environment.

    All arrays of such an environment have `num_envs * num_agents` rows, those of one environment together, and its
    single spaces are those of one agent. `infos["valid"]`, bool `[rows]`, is False for agents that did not act in a
    step, such as those whose episode has ended before; without it all acted. An environment's episode ends in the step
    in which the last of its agents ends; then all agents start again together, in the environment's autoreset mode.

    Args:
        envs: the vector environment.   device, seed, name: as for `GymnasiumVectorAdapter`.

    Raises: ConfigurationError for unsupported spaces, and from a reset or step whose results do not fit them.
    """

    def __init__(self, envs: gym.vector.VectorEnv, *, device: torch.device, seed: int = 0, name: str = "environment"):
        super().__init__(envs, device=device, seed=seed, name=name)
        self.agent_names: tuple[str, ...] = getattr(envs, "agent_names", ())
        self.has_invalid_steps = True
        self._elapsed = np.zeros(self.num_envs, dtype=np.int64)
        self._over = np.zeros(self.num_envs, dtype=np.bool_)

    def reset(self, seed: int | None = None) -> tuple[Obs, dict[str, Tensor]]:
        """Reset every environment; seeded the first time and whenever a seed is given."""
        self._over[...] = False
        return super().reset(seed)

    def _step_into(self, actions: Array, place: StepBuffers) -> VectorStep:
        """Step the environments and write the result to the buffers."""
        obs, reward, terminated, truncated, infos = self.envs.step(actions)
        own = place.arrays
        for name, value in (("rewards", reward), ("terminated", terminated), ("truncated", truncated)):
            require_shape(value, self._ended.shape, name)
        assign_rows(own.obs, ..., self._read(obs))
        own.reward[...], own.terminated[...], own.truncated[...] = reward, terminated, truncated
        if self._masked:
            own.action_mask[...] = self._mask(infos)
        self._mark_valid(own, infos)
        acted = self._by_env(own.valid).any(1)
        self._elapsed += acted
        self._over[...] = self._by_env(own.terminated | own.truncated | ~own.valid).all(1) & acted
        cut = self._cut_envs(own)
        np.logical_or(own.terminated, own.truncated, out=self._ended)
        np.logical_or(self._ended, ~own.valid, out=own.episode_start)
        lost = self._ended if self.return_all_final_obs else own.truncated
        if lost.any():
            self._store_last_obs(own, infos, lost)
        self._elapsed[self._over | cut] = 0
        self._reset_over(own, cut)
        return place.step if lost.any() else place.without_final

    def _mark_valid(self, own: HostArrays, infos: dict[str, Any]) -> None:
        """Clear the results of agents that did not act and of autoreset steps."""
        valid = infos.get("valid", True)
        if valid is not True:
            require_shape(valid, self._ended.shape, "valid")
        own.valid[...] = valid
        if self.mode is AutoresetMode.NEXT_STEP:
            own.valid[self._by_row(self._over)] = False
        own.reward[~own.valid] = 0.0
        own.terminated[~own.valid] = False
        own.truncated[~own.valid] = False

    def _cut_envs(self, own: HostArrays) -> Array:
        """Truncate the episodes that have reached the limit; return which environments, `[num_envs]`."""
        if not self._max_steps:
            return np.zeros_like(self._over)
        cut = (self._elapsed >= self._max_steps) & ~self._over
        own.truncated[...] |= self._by_row(cut) & own.valid & ~own.terminated
        return cut

    def _store_last_obs(self, own: HostArrays, infos: dict[str, Any], lost: Array) -> None:
        """Store the last observations: of environments that were reset in this step, those in the infos."""
        assign_rows(own.final_obs, ..., own.obs)
        replaced = lost & self._by_row(self._over)
        if self.mode is AutoresetMode.SAME_STEP and replaced.any():
            last = [self._read_obs(each) for each in infos["final_obs"][replaced]]
            assign_rows(own.final_obs, replaced, map_parts(lambda *each: np.stack(each), *last))

    def _reset_over(self, own: HostArrays, cut: Array) -> None:
        """Reset the environments that are over, in the autoreset mode disabled, and those that were truncated."""
        disabled = self.mode is AutoresetMode.DISABLED
        chosen = self._over | cut if disabled else cut
        if not chosen.any():
            return
        if not disabled:
            raise ConfigurationError(
                f"{self.name} cannot reset single environments, so episodes cannot be truncated after"
                f" {self._max_steps} steps: give it a time limit, or the autoreset mode DISABLED."
            )
        obs, infos = self.envs.reset(options={"reset_mask": chosen.copy()})
        rows = self._by_row(chosen)
        assign_rows(own.obs, rows, map_parts(lambda part: part[rows], self._read(obs)))
        if self._masked:
            own.action_mask[rows] = self._mask(infos)[rows]

    def _mask(self, infos: dict[str, Any]) -> Array:
        """Return the action masks of the rows, all True for agents that have no observation."""
        mask = super()._mask(infos)
        return mask | ~mask.any(1, keepdims=True)

    def _by_env(self, rows: Array) -> Array:
        return rows.reshape(self.num_envs, -1)

    def _by_row(self, envs: Array) -> Array:
        return envs.repeat(len(self._ended) // self.num_envs)

    def _seeds(self, seed: int) -> int | list[int]:
        """Return independent 31-bit seeds, one per environment, or a single one if they share a generator."""
        each = isinstance(self.envs.unwrapped, ParallelVectorEnv)
        seeds = env_seeds(seed, self.num_envs if each else 1)
        return seeds.tolist() if each else int(seeds[0])
