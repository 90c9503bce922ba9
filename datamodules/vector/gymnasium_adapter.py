"""Any Gymnasium vector environment as Leyden's VectorEnv: three autoreset modes in, one kind of Step out."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from torch import Tensor

from datamodules.core.errors import UsageError
from datamodules.core.seeding import env_seeds
from datamodules.core.types import Spaces, Step
from datamodules.env_interface.env_errors import breach, breaks_contract, refuse_exit, require_shape
from datamodules.env_interface.restarts import Restarts
from datamodules.env_interface.spaces import Array, action_writer, observation_reader, spaces_of


class _Buffers(NamedTuple):
    """Everything a step brings, in memory that is allocated once and that tensors share."""

    obs: Array
    reward: Array
    terminated: Array
    truncated: Array
    final_obs: Array
    valid: Array
    begins: Array
    action_mask: Array


class Place(NamedTuple):
    """Where a step is written: arrays, and the tensors that share their memory, with last observations and without.

    begins: rows whose observation is the first of an episode, or will be, where this one is a phantom's.
    """

    arrays: _Buffers
    step: Step
    without_final: Step
    begins: Tensor


class GymnasiumEnv:
    """Steps a `gymnasium.vector.VectorEnv` with tensors.

    Of the infos only the last observations and an `action_mask` `[B, n]` are read, the latter if the first reset brings
    one (and all True where a later reset or a step brings none). On a CPU the tensors of a step are overwritten by the
    next one.

    Args:
        envs: the environments, in whichever autoreset mode `envs.metadata` names (NEXT_STEP where it names none).
        device: where tensors go.
        seed: of the first `reset` that is given none.
        name: the environment, for messages.
        make_one: makes such a vector environment of one row: it replaces a row that a limit cuts where `envs` cannot
            reset rows alone.

    Raises: UsageError for spaces that are not taken, and from a reset or step whose results do not fit them.
    """

    episode_keys: tuple[str, ...] = ()
    shortest_truncation: int | None = None

    pure = False
    every_final = False

    def __init__(
        self,
        envs: gym.vector.VectorEnv,
        *,
        device: torch.device,
        seed: int = 0,
        name: str = "environment",
        make_one: Callable[[], gym.vector.VectorEnv] | None = None,
    ):
        self.envs, self.device, self.num_envs, self.name = envs, device, envs.num_envs, name
        self.spaces: Spaces = spaces_of(envs.single_observation_space, envs.single_action_space, name=name)
        self.mode = AutoresetMode(envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self.restarts: Restarts | None = getattr(envs, "restarts", None)
        self.phantoms = self.mode is AutoresetMode.NEXT_STEP or self.restarts is not None
        self._read_obs = observation_reader(envs.single_observation_space)
        self._write_action = action_writer(envs.single_action_space)
        self._first_seed: int | None = seed
        self._make_one, self._seed, self._max_steps = make_one, seed, 0
        self._elapsed = np.zeros(self.num_envs, dtype=np.int64)
        self._spare: dict[int, gym.vector.VectorEnv] = {}
        self._masked = False
        self._ended, self._any_ended = np.zeros(self.num_envs, dtype=np.bool_), False
        self._own = _place(self._allocated(), masked=False)

    def reset(self, seed: int | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """Start every environment anew; seeded the first time and whenever a seed is given.

        Returns: observations `[B, *obs]` and, where the environment brings one, `action_mask` `[B, n]` bool.
        """
        seed, self._first_seed = self._first_seed if seed is None else seed, None
        self._seed = self._seed if seed is None else seed
        self._elapsed[...] = 0
        self._close_spare()
        try:
            # Gymnasium's own vector environments take a list, which the signature of their base class does not say.
            obs, infos = self.envs.reset(seed=None if seed is None else self._seeds(seed))  # type: ignore[arg-type]
            self._masked = "action_mask" in infos
            self._own = _place(self._own.arrays, self._masked)
            self._own.arrays.obs[...] = self._read(obs)
            if self._masked:
                self._own.arrays.action_mask[...] = self._mask(infos)
        except (Exception, SystemExit) as error:
            self._require_own(error)
            raise
        self._any_ended, self._ended[...] = False, False
        step = self._sent(self._own.without_final)
        return step.obs, step.info

    def limit(self, steps: int) -> None:
        """Truncate every episode after so many steps, from the next reset on."""
        self._max_steps = steps

    def noise(self, steps: int) -> None:
        """None: Gymnasium environments draw their own randomness."""

    def place(self, **columns: Tensor) -> Place:
        """Where `step` may be told to write, in place of memory of its own.

        Args:
            columns: `obs`, `reward`, `terminated`, `truncated` and `valid` of a step, `[B, ...]` each, on the host; the
                last is all True, and written only where there are `phantoms`.
        """
        arrays = {name: column.numpy() for name, column in columns.items()}
        return _place(self._own.arrays._replace(**arrays, begins=np.zeros_like(self._ended)), self._masked)

    def step(self, action: Tensor, noise: Tensor | None = None, place: Place | None = None) -> Step:
        """Advance every environment by one step.

        Args:
            action: `[B]` or `[B, parts]`, 0-based and unclipped, on any device.
            noise: not used.
            place: where the step is written.
        """
        actions = self._write_action(action.cpu().numpy())
        try:
            return self._sent(self._answer(actions, place or self._own))
        except (Exception, SystemExit) as error:
            self._require_own(error)
            raise

    def state_dict(self) -> dict[str, object]:
        """Empty: a Gymnasium environment cannot be saved in general, so a resumed run begins new episodes."""
        return {}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Nothing to restore; the caller resets."""

    def close(self) -> None:
        """Release processes and windows."""
        self.envs.close()
        self._close_spare()

    def _close_spare(self) -> None:
        for each in self._spare.values():
            each.close()
        self._spare = {}

    def _require_own(self, error: BaseException) -> None:
        """Raises: UsageError unless the error is one of the environments' own, RuntimeError for an exit."""
        refuse_exit(error, self.name)
        if breaks_contract(error) and not isinstance(error, UsageError):
            raise UsageError(breach(self.name, self.spaces["obs_shape"], error)) from error

    def _answer(self, actions: Array, place: Place) -> Step:
        """A step, written to its place."""
        obs, reward, terminated, truncated, infos = self.envs.step(actions)
        own = place.arrays
        for name, value in (("rewards", reward), ("terminated", terminated), ("truncated", truncated)):
            require_shape(value, self._ended.shape, name)
        own.obs[...] = self._read(obs)
        own.reward[...] = reward
        own.terminated[...] = terminated
        own.truncated[...] = truncated
        if self._masked:
            own.action_mask[...] = self._mask(infos)
        self._step_spare(actions, own, infos)
        if self.mode is AutoresetMode.NEXT_STEP:
            self._silence_phantoms(own)
        elif self.phantoms:
            np.logical_not(infos.get("broken", np.zeros_like(own.valid)), out=own.valid)
            self._elapsed[~own.valid] = 0
        cut = self._cut(own) if self._max_steps else None
        np.logical_or(own.terminated, own.truncated, out=self._ended)
        np.logical_or(self._ended, ~own.valid, out=own.begins)
        self._any_ended = bool(np.count_nonzero(self._ended))
        if not self._any_ended:
            return place.without_final
        lost = self._ended if self.every_final else own.truncated
        self._elapsed[self._ended] = 0
        self._end_episodes(own, infos, lost if cut is None else lost & ~cut)
        step = place.step if lost.any() else place.without_final
        if cut is not None and self.mode is not AutoresetMode.DISABLED and cut.any():
            self._restart(own, cut)
        return step

    def _cut(self, own: _Buffers) -> Array:
        """Truncate the rows whose episode has reached the limit; which those are, `[B]`."""
        self._elapsed += own.valid
        cut = (self._elapsed >= self._max_steps) & own.valid & ~own.terminated & ~own.truncated
        np.logical_or(own.truncated, cut, out=own.truncated)
        return cut

    def _restart(self, own: _Buffers, cut: Array) -> None:
        """Begin the next episode of rows that were cut: in the same step, whatever the mode, so no phantom follows."""
        if isinstance(self.envs.unwrapped, SyncVectorEnv | AsyncVectorEnv):
            obs, infos = self.envs.reset(options={"reset_mask": cut.copy()})
            own.obs[cut] = self._read(obs)[cut]
            if self._masked:
                own.action_mask[cut] = self._mask(infos)[cut]
        else:
            for row in cut.nonzero()[0]:
                self._restart_spare(own, int(row))
        self._ended[cut] = False
        self._any_ended = bool(self._ended.any())

    def _restart_spare(self, own: _Buffers, row: int) -> None:
        """Begin an episode of a row in a vector environment of its own, which serves the row from now on."""
        seed = None
        if row not in self._spare:
            if self._make_one is None:
                raise UsageError(
                    f"{self.name} cannot reset one of its environments alone, so no episode can be cut after"
                    f" {self._max_steps} steps: give it a time limit, or choose backend sync."
                )
            self._spare[row], seed = self._make_one(), int(env_seeds(self._seed, self.num_envs)[row])
        obs, infos = self._spare[row].reset(seed=seed)
        own.obs[row] = self._read_obs(obs)[0]
        if self._masked:
            own.action_mask[row] = infos["action_mask"][0] if "action_mask" in infos else True

    def _step_spare(self, actions: Array, own: _Buffers, infos: dict[str, Any]) -> None:
        """Step the rows that have a vector environment of their own, in place of what `envs` says of them."""
        for row, env in self._spare.items():
            obs, reward, terminated, truncated, info = env.step(actions[row : row + 1])
            own.obs[row], own.reward[row] = self._read_obs(obs)[0], reward[0]
            own.terminated[row], own.truncated[row] = terminated[0], truncated[0]
            if self._masked:
                own.action_mask[row] = info["action_mask"][0] if "action_mask" in info else True
            if "final_obs" in info:
                infos.setdefault("final_obs", np.full(self.num_envs, None, dtype=object))[row] = info["final_obs"][0]

    def _silence_phantoms(self, own: _Buffers) -> None:
        """The step after an end only brings the next episode's first observation: not valid, no reward, no end."""
        phantom = self._ended
        np.logical_not(phantom, out=own.valid)
        if self._any_ended:
            own.reward[phantom] = 0.0
            own.terminated[phantom] = False
            own.truncated[phantom] = False

    def _end_episodes(self, own: _Buffers, infos: dict[str, Any], lost: np.ndarray) -> None:
        """Keep the last observations that are asked for, and reset ended rows where the environment leaves it to us."""
        ended = self._ended
        own.final_obs[...] = own.obs
        if self.mode is AutoresetMode.SAME_STEP and lost.any():
            own.final_obs[lost] = self._read_obs(np.stack(infos["final_obs"][lost]))
        elif self.mode is AutoresetMode.DISABLED:
            first, infos = self.envs.reset(options={"reset_mask": ended.copy()})
            own.obs[ended] = self._read(first)[ended]
            if self._masked:
                own.action_mask[ended] = self._mask(infos)[ended]

    def _read(self, obs: Any) -> Array:
        """Observations as numbers `[B, *obs]`.

        Raises: ValueError for another shape, which numpy might broadcast.
        """
        numbers = self._read_obs(obs)
        require_shape(numbers, self._own.arrays.obs.shape, "observations")
        return numbers

    def _mask(self, infos: dict[str, Any]) -> Array:
        """Return the rows' masks, all True where none of them brings one."""
        if "action_mask" not in infos:
            return np.ones_like(self._own.arrays.action_mask)
        require_shape(infos["action_mask"], self._own.arrays.action_mask.shape, "action_mask")
        return infos["action_mask"]

    def _sent(self, step: Step) -> Step:
        """A step on the device; on a CPU as it is, in the same memory every time."""
        if self.device.type == "cpu":
            return step
        moved = {name: part.to(self.device) for name, part in step._asdict().items() if isinstance(part, Tensor)}
        return step._replace(**moved, info={key: mask.to(self.device) for key, mask in step.info.items()})

    def _allocated(self) -> _Buffers:
        rows, spaces = self.num_envs, self.spaces
        obs_shape, obs_dtype = (rows, *spaces["obs_shape"]), spaces["obs_dtype"]
        return _Buffers(
            obs=np.zeros(obs_shape, dtype=obs_dtype),
            reward=np.zeros(rows, dtype=np.float32),
            terminated=np.zeros(rows, dtype=np.bool_),
            truncated=np.zeros(rows, dtype=np.bool_),
            final_obs=np.zeros(obs_shape, dtype=obs_dtype),
            valid=np.ones(rows, dtype=np.bool_),
            begins=np.ones(rows, dtype=np.bool_),
            action_mask=np.ones((rows, sum(spaces["action_sizes"])), dtype=np.bool_),
        )

    def _seeds(self, seed: int) -> int | list[int]:
        """Independent 31-bit seeds, one an environment, or a single one where the environments share a generator."""
        each = isinstance(self.envs, SyncVectorEnv | AsyncVectorEnv)
        seeds = env_seeds(seed, self.num_envs if each else 1)
        return seeds.tolist() if each else int(seeds[0])


def _place(arrays: _Buffers, masked: bool) -> Place:
    *parts, mask = map(torch.from_numpy, arrays)
    obs, reward, terminated, truncated, final_obs, valid, begins = parts
    step = Step(obs, reward, terminated, truncated, final_obs, valid, {"action_mask": mask} if masked else {})
    return Place(arrays, step, step._replace(final_obs=None), begins)
