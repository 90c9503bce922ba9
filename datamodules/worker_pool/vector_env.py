"""WorkerPoolVectorEnv: Gymnasium environments in worker processes, several per process, with shared memory.

The training loop uses `WorkerPoolVectorEnv`; `supervisor` is the parent's side of the processes, and `worker` runs in
them.
"""

import os
from collections.abc import Sequence
from contextlib import closing
from multiprocessing.util import Finalize
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.pytree import name_parts, tree_leaves, tree_map
from datamodules.core.seeding import env_seeds
from datamodules.core.types import Obs, SpaceSpec, VectorStep
from datamodules.env_interface.obs_parts import map_parts
from datamodules.env_interface.processes import ENV_TIMEOUT, MakeEnv
from datamodules.env_interface.restart_counter import RestartCounter
from datamodules.env_interface.spaces import Array, make_action_encoder, make_obs_decoder, to_space_spec, zero_obs
from datamodules.worker_pool.shared_memory import Layout, page_aligned
from datamodules.worker_pool.supervisor import WorkerSupervisor
from datamodules.worker_pool.worker import QUEUE_SIZE, RESET, SPIN_TRIES_DEDICATED, SPIN_TRIES_SHARED, STEP


class WorkerPoolVectorEnv:
    """Vector environment that steps Gymnasium environments in worker processes, in two independent groups.

    `send(half, action)` starts the steps of a group, `receive(half)` waits for them: while one group steps, the policy
    can act for the other, with the current weights and the newest observations. `step` does both groups.

    Environments are reset in the step that ends their episode. Of their infos only an `action_mask` `[n]` is read, if
    resets return one. The tensors of a step are in shared memory (or are copies on the device) and are overwritten by
    the next step of their rows.

    Args:
        makers: environment factories, one per environment; the spaces are those of the first.
        num_workers: processes; None uses one less than this process's cores (at least two). At most half the number of
            environments.
        ranks: number of processes that share the host's cores.
        device: device of the tensors.
        pin_memory: fill a GPU through pinned memory.
        seed: seed of the first `reset` without a seed.
        timeout: maximum seconds for the start, a reset or a step of an environment.
        restart: restart environments that raise, crash or hang: their step is not valid, and its observation is the
            first of a new episode. If a process crashes or hangs, all its environments are restarted.
        name: name of the environment in messages.

    Attributes:
        groups: rows of each of the two groups.
        pinned: whether copies to the device start from pinned memory.

    Raises:
        ConfigurationError: for no environments, no workers, unsupported spaces, and factories that cannot be pickled.
    """

    episode_stat_keys: tuple[str, ...] = ()
    min_truncation_step: int | None = None
    is_stateless = False
    return_all_final_obs = False

    def __init__(
        self,
        makers: Sequence[MakeEnv],
        *,
        num_workers: int | None = None,
        ranks: int = 1,
        device: torch.device,
        pin_memory: bool = True,
        seed: int = 0,
        timeout: float = ENV_TIMEOUT,
        restart: bool = False,
        name: str = "environment",
    ):
        self.num_envs, self.device = len(makers), device
        self._first_seed: int | None = seed
        cores = cores_of_rank(ranks)
        workers = max(min(cores, 2), cores - 1) if num_workers is None else num_workers
        for what, number in (("num_envs", self.num_envs), ("num_workers", workers)):
            if number < 1:
                raise ConfigurationError(f"{what} is {number}; it must be at least 1.")
        with closing(makers[0]()) as one:
            observation, action = one.observation_space, one.action_space
        self.spaces: SpaceSpec = to_space_spec(observation, action, name=name)
        self.num_workers = min(workers, max(1, self.num_envs // 2))
        middle = -(-self.num_envs // 2)
        self.groups = (slice(0, middle), slice(middle, self.num_envs))
        self._write_action = make_action_encoder(action)
        self.restarts = RestartCounter(name, self.num_envs) if restart else None
        self.has_invalid_steps = restart
        self._crew = WorkerSupervisor(
            makers,
            make_obs_decoder(observation),
            halves=self.groups,
            num_workers=self.num_workers,
            spins=SPIN_TRIES_DEDICATED if self.num_workers < cores else SPIN_TRIES_SHARED,
            layout=_layout(self.spaces, (action.shape or (), action.dtype), self.num_envs, self.num_workers),
            timeout=timeout,
            restarts=self.restarts,
            name=name,
        )
        self.processes, shared = self._crew.processes, self._crew.shared
        self._terminated: Array = shared.outcome.view(np.bool_)[:, 4]
        self._truncated: Array = shared.outcome.view(np.bool_)[:, 5]
        self._host = _DeviceBuffers(
            *(map_parts(torch.from_numpy, each) for each in shared[:2]),
            *map(torch.from_numpy, (shared.action_mask, shared.outcome)),
        )
        self._here = self._host if device.type == "cpu" else tree_map(lambda part: part.to(device), self._host)
        self._pin(pin_memory)

    def reset(self, seed: int | None = None) -> tuple[Obs, dict[str, Tensor]]:
        """Reset every environment; seeded the first time and whenever a seed is given.

        Returns: observations `[B, *obs]` and, if the environment returns one, `action_mask` `[B, n]` bool.
        """
        seed, self._first_seed = self._first_seed if seed is None else seed, None
        crew = self._crew
        for half in (0, 1):
            if crew.is_busy(half):
                crew.wait(half)
        crew.shared.seed[:] = -1 if seed is None else env_seeds(seed, self.num_envs)
        for half in (0, 1):
            self._send_command(RESET, half)
        for half in (0, 1):
            crew.wait(half)
        masked = bool(crew.shared.masked.any())
        rows = (*self.groups, slice(0, self.num_envs))
        self._steps = [[self._here.step(part, masked, final) for final in (False, True)] for part in rows]
        self._copies = [[self._copies_of(half, masked, final) for final in (False, True)] for half in self.groups]
        for half in (0, 1):
            self._bring_noted(half, final=False)
        return self.last_step.obs, self.last_step.info

    def limit(self, steps: int) -> None:
        """Truncate every episode after this number of steps, from the next reset on."""
        self._crew.shared.limit[0] = steps

    def noise(self, steps: int) -> None:
        """Return None: Gymnasium environments draw their own random numbers."""

    def send(self, half: int, action: Tensor) -> None:
        """Start one step of a group.

        Args:
            half: 0 or 1.
            action: actions of the rows `groups[half]`, `[B, ...]`, 0-based and unclipped, on any device.

        Raises: RuntimeError if the last step of the group was not received, or the pool is closed.
        """
        self._crew.shared.action[self.groups[half]] = self._write_action(action.numpy(force=True))
        self._send_command(STEP, half)

    def receive(self, half: int) -> VectorStep:
        """Wait for the step of a group and return it; its rows are `groups[half]`.

        Raises: ConfigurationError if an environment exceeded its timeout; RuntimeError if one raised, a process
        crashed, or nothing was sent.
        """
        return self._bring_noted(half, self.wait(half))

    def wait(self, half: int) -> bool:
        """Wait for the step of a group, which stays on the host; return whether it has true last observations.

        Raises: ConfigurationError if an environment exceeded its timeout; RuntimeError if one raised, a process
        crashed, or nothing was sent.
        """
        self._crew.wait(half)
        rows = self.groups[half]
        if self.restarts is not None:
            self.restarts.steps += rows.stop - rows.start
        ended = self._truncated[rows] | self._terminated[rows] if self.return_all_final_obs else self._truncated[rows]
        return bool(ended.any())

    def copy_to_device(self, half: int, final: bool = False) -> VectorStep:
        """Start copying the newest step of a group to the device; the caller must synchronize before `send`."""
        for target, source in self._copies[half][final]:
            target.copy_(source, non_blocking=self.pinned)
        return self._steps[half][final]

    @property
    def last_step(self) -> VectorStep:
        """Return the last step of both groups on the device, without true last observations."""
        return self._steps[2][False]

    def step(self, action: Tensor, noise: Tensor | None = None) -> VectorStep:
        """Step every environment.

        Args:
            action: `[B]` or `[B, parts]`, 0-based and unclipped, on any device.
            noise: not used.
        """
        action = action.cpu()
        for half, rows in enumerate(self.groups):
            self.send(half, action[rows])
        parts = [self.receive(half) for half in (0, 1)]
        return self._steps[2][any(part.final_obs is not None for part in parts)]

    def state_dict(self) -> dict[str, object]:
        """Return an empty state: Gymnasium environments cannot be saved in general, so a resumed run resets them."""
        return {}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Do nothing: there is no state, and the caller resets."""

    def close(self) -> None:
        """End the processes; can be called repeatedly."""
        self._crew.close()
        if self._unpin is not None:
            self._unpin()

    def _send_command(self, kind: int, half: int) -> None:
        """Send a command to the workers after the copies of this group to the device are done."""
        if self._copied:
            self._copied[half].synchronize()
        self._crew.send(kind, half)

    def _bring_noted(self, half: int, final: bool) -> VectorStep:
        """Copy with `copy_to_device`, and record an event that the next command waits for."""
        step = self.copy_to_device(half, final)
        if self._copied:
            self._copied[half].record()
        return step

    def _copies_of(self, rows: slice, masked: bool, final: bool) -> list[tuple[Tensor, Tensor]]:
        """Return target and source of every copy of these rows to the device; none if they are on it."""
        if self._here is self._host:
            return []
        names = ["obs", "outcome", *["action_mask"] * masked, *["final_obs"] * final]
        here, host = ([getattr(side, name) for name in names] for side in (self._here, self._host))
        pairs = zip(tree_leaves(here), tree_leaves(host), strict=True)
        return [(target[rows], source[rows]) for target, source in pairs]

    def _pin(self, pin_memory: bool) -> None:
        """Pin the shared memory if the device is a GPU, so that copies are asynchronous and need no staging."""
        self.pinned, self._copied, self._unpin = False, cast(tuple[torch.cuda.Event, ...], ()), None
        if self.device.type != "cuda" or not pin_memory:
            return
        block = torch.from_numpy(page_aligned(self._crew.memory))
        with torch.cuda.device(self.device):
            failure = int(torch.cuda.cudart().cudaHostRegister(block.data_ptr(), block.numel(), 0))
        if failure:
            rank_zero_warn(
                f"The pool's memory could not be pinned (CUDA error {failure}): copies to the GPU are slower."
            )
            return
        self.pinned, self._copied = True, (torch.cuda.Event(), torch.cuda.Event())
        self._unpin = Finalize(self, _unpin, (block,), exitpriority=5)


class _DeviceBuffers(NamedTuple):
    """Tensors of a step's results; see `shared_memory.Shared`."""

    obs: Obs
    final_obs: Obs
    action_mask: Tensor
    outcome: Tensor

    def step(self, rows: slice, masked: bool, final: bool) -> VectorStep:
        """Return a VectorStep of these rows that shares their memory."""
        outcome = self.outcome[rows]
        terminated, truncated, valid = outcome.view(torch.bool)[:, 4:7].unbind(1)
        return VectorStep(
            obs=tree_map(lambda part: part[rows], self.obs),
            reward=outcome.view(torch.float32)[:, 0],
            terminated=terminated,
            truncated=truncated,
            final_obs=tree_map(lambda part: part[rows], self.final_obs) if final else None,
            valid=valid,
            info={"action_mask": self.action_mask[rows]} if masked else {},
        )


def _layout(spaces: SpaceSpec, action: tuple[tuple[int, ...], Any], num_envs: int, num_workers: int) -> Layout:
    shape, dtype = action
    obs = [name_parts(name, zero_obs(spaces, 1)) for name in ("obs", "final_obs")]
    return {
        **{name: ((num_envs, *one.shape[1:]), one.dtype) for parts in obs for name, one in parts.items()},
        "action": ((num_envs, *shape), dtype),
        "action_mask": ((num_envs, sum(spaces["action_sizes"])), "bool"),
        "outcome": ((num_envs, 8), "uint8"),
        "masked": ((num_envs,), "bool"),
        "seed": ((num_envs,), "int64"),
        "current": ((num_workers,), "int64"),
        "call": ((num_workers,), "uint8"),
        "served": ((num_workers,), "int64"),
        "owed": ((num_workers,), "bool"),
        "failures": ((num_workers,), "int64"),
        "limit": ((1,), "int64"),
        "orders": ((QUEUE_SIZE,), "uint8"),
        "closing": ((1,), "uint8"),
    }


def cores_of_rank(ranks: int) -> int:
    """Return the number of cores per rank, for `ranks` processes on this host."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // ranks)


def _unpin(block: Tensor) -> None:
    torch.cuda.cudart().cudaHostUnregister(block.data_ptr())
