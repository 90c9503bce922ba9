"""GymnasiumVectorAdapter: any Gymnasium vector environment as a VectorEnv, for all three autoreset modes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.pytree import tree_map
from datamodules.core.seeding import env_seeds
from datamodules.core.types import Obs, SpaceSpec, VectorStep
from datamodules.env_interface.env_errors import is_return_value_error, refuse_exit, require_shape, violation_message
from datamodules.env_interface.obs_parts import assign_rows, map_parts, obs_shape, split_vector_observation
from datamodules.env_interface.restart_counter import RestartCounter
from datamodules.env_interface.spaces import Array, make_action_encoder, make_obs_decoder, to_space_spec, zero_obs


class HostArrays(NamedTuple):
    """Arrays of one step's results, allocated once and shared with tensors; observations may have parts by name."""

    obs: Any
    reward: Array
    terminated: Array
    truncated: Array
    final_obs: Any
    valid: Array
    episode_start: Array
    action_mask: Array


class StepBuffers(NamedTuple):
    """Arrays that a step is written to, and tensors that share their memory, with and without `final_obs`.

    episode_start: rows whose observation is the first of an episode, or is followed by it after an autoreset step.
    """

    arrays: HostArrays
    step: VectorStep
    without_final: VectorStep
    episode_start: Tensor


class GymnasiumVectorAdapter:
    """VectorEnv of a `gymnasium.vector.VectorEnv`.

    Of the infos only last observations and an `action_mask` `[B, n]` are read, the latter if the first reset returns
    one (all True if a later reset or step does not). On a CPU the tensors of a step are overwritten by the next one.

    Args:
        envs: Gymnasium vector environment, in the autoreset mode of `envs.metadata` (default NEXT_STEP).
        device: device of the tensors.
        seed: seed of the first `reset` without a seed.
        name: name of the environment in messages.
        make_one: creates such a vector environment of one row; it replaces a row truncated by `limit` if `envs` cannot
            reset single rows.

    Raises: ConfigurationError for unsupported spaces, and from a reset or step whose results do not fit them.
    """

    episode_stat_keys: tuple[str, ...] = ()
    min_truncation_step: int | None = None

    is_stateless = False
    return_all_final_obs = False

    def __init__(
        self,
        envs: gym.vector.VectorEnv,
        *,
        device: torch.device,
        seed: int = 0,
        name: str = "environment",
        make_one: Callable[[], gym.vector.VectorEnv] | None = None,
    ):
        envs = split_vector_observation(envs, name)
        self.envs, self.device, self.num_envs, self.name = envs, device, envs.num_envs, name
        spaces = to_space_spec(envs.single_observation_space, envs.single_action_space, name=name)
        self.spaces: SpaceSpec = {**spaces, "num_agents": getattr(envs, "num_agents", 1)}
        self.mode = AutoresetMode(envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self.restarts: RestartCounter | None = getattr(envs, "restarts", None)
        self.has_invalid_steps = self.mode is AutoresetMode.NEXT_STEP or self.restarts is not None
        self._read_obs = make_obs_decoder(envs.single_observation_space)
        self._write_action = make_action_encoder(envs.single_action_space)
        self._first_seed: int | None = seed
        self._make_one, self._seed, self._max_steps = make_one, seed, 0
        self._elapsed = np.zeros(self.num_envs, dtype=np.int64)
        self._spare: dict[int, gym.vector.VectorEnv] = {}
        self._masked = False
        rows = self.num_envs * self.spaces["num_agents"]
        self._ended, self._any_ended = np.zeros(rows, dtype=np.bool_), False
        self._buffers = _place(self._allocated(), masked=False)
        self._obs_shape = obs_shape(self._buffers.arrays.obs)

    def reset(self, seed: int | None = None) -> tuple[Obs, dict[str, Tensor]]:
        """Reset every environment; seeded the first time and whenever a seed is given.

        Returns: observations `[B, *obs]` and, if the environment returns one, `action_mask` `[B, n]` bool.
        """
        seed, self._first_seed = self._first_seed if seed is None else seed, None
        self._seed = self._seed if seed is None else seed
        self._elapsed[...] = 0
        self._close_spare()
        try:
            # Gymnasium's own vector environments take a list, which the signature of their base class does not say.
            obs, infos = self.envs.reset(seed=None if seed is None else self._seeds(seed))  # type: ignore[arg-type]
            self._masked = "action_mask" in infos
            self._buffers = _place(self._buffers.arrays, self._masked)
            assign_rows(self._buffers.arrays.obs, ..., self._read(obs))
            if self._masked:
                self._buffers.arrays.action_mask[...] = self._mask(infos)
        except (Exception, SystemExit) as error:
            self._require_own(error)
            raise
        self._any_ended, self._ended[...] = False, False
        step = self._to_device(self._buffers.without_final)
        return step.obs, step.info

    def limit(self, steps: int) -> None:
        """Truncate every episode after this number of steps, from the next reset on."""
        self._max_steps = steps

    def noise(self, steps: int) -> None:
        """Return None: Gymnasium environments draw their own random numbers."""

    def step_buffers(self, **columns: Obs) -> StepBuffers:
        """Return buffers of the given tensors that `step` can write to instead of its own.

        Args:
            columns: `obs`, `reward`, `terminated`, `truncated` and `valid` of a step, `[B, ...]` each, on the host; the
                last is all True, and written only with `has_invalid_steps`.
        """
        arrays = {name: map_parts(Tensor.numpy, column) for name, column in columns.items()}
        return _place(self._buffers.arrays._replace(**arrays, episode_start=np.zeros_like(self._ended)), self._masked)

    def step(self, action: Tensor, noise: Tensor | None = None, place: StepBuffers | None = None) -> VectorStep:
        """Step every environment.

        Args:
            action: `[B]` or `[B, parts]`, 0-based and unclipped, on any device.
            noise: not used.
            place: buffers that the step is written to.
        """
        actions = self._write_action(action.cpu().numpy())
        try:
            return self._to_device(self._step_into(actions, place or self._buffers))
        except (Exception, SystemExit) as error:
            self._require_own(error)
            raise

    def state_dict(self) -> dict[str, object]:
        """Return an empty state: Gymnasium environments cannot be saved in general, so a resumed run resets them."""
        return {}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Do nothing: there is no state, and the caller resets."""

    def close(self) -> None:
        """Close processes and windows."""
        self.envs.close()
        self._close_spare()

    def _close_spare(self) -> None:
        for each in self._spare.values():
            each.close()
        self._spare = {}

    def _require_own(self, error: BaseException) -> None:
        """Check that an error was raised by the environment itself.

        Raises: ConfigurationError if its return values caused it, RuntimeError for an exit.
        """
        refuse_exit(error, self.name)
        if is_return_value_error(error) and not isinstance(error, ConfigurationError):
            raise ConfigurationError(
                violation_message(self.name, obs_shape(self.envs.single_observation_space), error)
            ) from error

    def _step_into(self, actions: Array, place: StepBuffers) -> VectorStep:
        """Step the environments and write the result to the buffers."""
        obs, reward, terminated, truncated, infos = self.envs.step(actions)
        own = place.arrays
        for name, value in (("rewards", reward), ("terminated", terminated), ("truncated", truncated)):
            require_shape(value, self._ended.shape, name)
        assign_rows(own.obs, ..., self._read(obs))
        own.reward[...] = reward
        own.terminated[...] = terminated
        own.truncated[...] = truncated
        if self._masked:
            own.action_mask[...] = self._mask(infos)
        if self._spare:
            self._step_spare(actions, own, infos)
        if self.mode is AutoresetMode.NEXT_STEP:
            self._clear_autoreset_steps(own)
        elif self.has_invalid_steps:
            np.logical_not(infos.get("broken", np.zeros_like(own.valid)), out=own.valid)
            self._elapsed[~own.valid] = 0
        cut = self._cut(own) if self._max_steps else None
        np.logical_or(own.terminated, own.truncated, out=self._ended)
        np.logical_or(self._ended, ~own.valid, out=own.episode_start)
        self._any_ended = bool(np.count_nonzero(self._ended))
        if not self._any_ended:
            return place.without_final
        lost = self._ended if self.return_all_final_obs else own.truncated
        self._elapsed[self._ended] = 0
        self._store_final_obs(own, infos, lost if cut is None else lost & ~cut)
        step = place.step if lost.any() else place.without_final
        if cut is not None and self.mode is not AutoresetMode.DISABLED and cut.any():
            self._restart(own, cut)
        return step

    def _cut(self, own: HostArrays) -> Array:
        """Truncate the rows whose episode has reached the limit; return which, `[B]`."""
        self._elapsed += own.valid
        cut = (self._elapsed >= self._max_steps) & own.valid & ~own.terminated & ~own.truncated
        np.logical_or(own.truncated, cut, out=own.truncated)
        return cut

    def _restart(self, own: HostArrays, cut: Array) -> None:
        """Reset the truncated rows in the same step, whatever the autoreset mode; no autoreset step follows."""
        if isinstance(self.envs.unwrapped, SyncVectorEnv | AsyncVectorEnv):
            obs, infos = self.envs.reset(options={"reset_mask": cut.copy()})
            assign_rows(own.obs, cut, map_parts(lambda part: part[cut], self._read(obs)))
            if self._masked:
                own.action_mask[cut] = self._mask(infos)[cut]
        else:
            for row in cut.nonzero()[0]:
                self._restart_spare(own, int(row))
        self._ended[cut] = False
        self._any_ended = bool(self._ended.any())

    def _restart_spare(self, own: HostArrays, row: int) -> None:
        """Start an episode of a row in a separate vector environment, which replaces the row from then on."""
        seed = None
        if row not in self._spare:
            if self._make_one is None:
                raise ConfigurationError(
                    f"{self.name} cannot reset single environments, so episodes cannot be truncated after"
                    f" {self._max_steps} steps: give it a time limit, or choose backend sync."
                )
            self._spare[row], seed = self._make_one(), int(env_seeds(self._seed, self.num_envs)[row])
        obs, infos = self._spare[row].reset(seed=seed)
        assign_rows(own.obs, row, map_parts(lambda part: part[0], self._read_obs(obs)))
        if self._masked:
            own.action_mask[row] = infos["action_mask"][0] if "action_mask" in infos else True

    def _step_spare(self, actions: Array, own: HostArrays, infos: dict[str, Any]) -> None:
        """Step the rows that have a separate vector environment, and overwrite their results."""
        for row, env in self._spare.items():
            obs, reward, terminated, truncated, info = env.step(actions[row : row + 1])
            assign_rows(own.obs, row, map_parts(lambda part: part[0], self._read_obs(obs)))
            own.reward[row] = reward[0]
            own.terminated[row], own.truncated[row] = terminated[0], truncated[0]
            if self._masked:
                own.action_mask[row] = info["action_mask"][0] if "action_mask" in info else True
            if "final_obs" in info:
                infos.setdefault("final_obs", np.full(self.num_envs, None, dtype=object))[row] = info["final_obs"][0]

    def _clear_autoreset_steps(self, own: HostArrays) -> None:
        """Mark autoreset steps: not valid, zero reward, neither terminated nor truncated."""
        autoreset_step = self._ended
        np.logical_not(autoreset_step, out=own.valid)
        if self._any_ended:
            own.reward[autoreset_step] = 0.0
            own.terminated[autoreset_step] = False
            own.truncated[autoreset_step] = False

    def _store_final_obs(self, own: HostArrays, infos: dict[str, Any], lost: np.ndarray) -> None:
        """Store the requested last observations, and reset ended rows if the autoreset mode is disabled."""
        ended = self._ended
        assign_rows(own.final_obs, ..., own.obs)
        if self.mode is AutoresetMode.SAME_STEP and lost.any():
            last = [self._read_obs(each) for each in infos["final_obs"][lost]]
            assign_rows(own.final_obs, lost, map_parts(lambda *each: np.stack(each), *last))
        elif self.mode is AutoresetMode.DISABLED:
            first, infos = self.envs.reset(options={"reset_mask": ended.copy()})
            assign_rows(own.obs, ended, map_parts(lambda part: part[ended], self._read(first)))
            if self._masked:
                own.action_mask[ended] = self._mask(infos)[ended]

    def _read(self, obs: Any) -> Any:
        """Return observations as an array `[B, *obs]`, or as those of their parts by name.

        Raises: ValueError for another shape, which numpy might broadcast.
        """
        numbers = self._read_obs(obs)
        require_shape(numbers, self._obs_shape, "observations")
        return numbers

    def _mask(self, infos: dict[str, Any]) -> Array:
        """Return the action masks of the rows, True where there is none.

        Gymnasium's vector environments put zeros in rows without a mask, and say in `_action_mask` which have one.
        """
        if "action_mask" not in infos:
            return np.ones_like(self._buffers.arrays.action_mask)
        require_shape(infos["action_mask"], self._buffers.arrays.action_mask.shape, "action_mask")
        there = infos.get("_action_mask")
        return infos["action_mask"] if there is None else infos["action_mask"] | ~np.asarray(there, bool)[:, None]

    def _to_device(self, step: VectorStep) -> VectorStep:
        """Copy a step to the device; on a CPU return it in the same memory."""
        if self.device.type == "cpu":
            return step
        return tree_map(lambda part: part.to(self.device), step)

    def _allocated(self) -> HostArrays:
        rows, spaces = len(self._ended), self.spaces
        return HostArrays(
            obs=zero_obs(spaces, rows),
            reward=np.zeros(rows, dtype=np.float32),
            terminated=np.zeros(rows, dtype=np.bool_),
            truncated=np.zeros(rows, dtype=np.bool_),
            final_obs=zero_obs(spaces, rows),
            valid=np.ones(rows, dtype=np.bool_),
            episode_start=np.ones(rows, dtype=np.bool_),
            action_mask=np.ones((rows, sum(spaces["action_sizes"])), dtype=np.bool_),
        )

    def _seeds(self, seed: int) -> int | list[int]:
        """Return independent 31-bit seeds, one per environment, or a single one if they share a generator."""
        each = isinstance(self.envs.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        seeds = env_seeds(seed, self.num_envs if each else 1)
        return seeds.tolist() if each else int(seeds[0])


def _place(arrays: HostArrays, masked: bool) -> StepBuffers:
    *parts, mask = (map_parts(torch.from_numpy, array) for array in arrays)
    obs, reward, terminated, truncated, final_obs, valid, episode_start = parts
    step = VectorStep(obs, reward, terminated, truncated, final_obs, valid, {"action_mask": mask} if masked else {})
    return StepBuffers(arrays, step, step._replace(final_obs=None), episode_start)
