"""A pool of processes for Gymnasium environments: some of them in each process, all of them in shared memory.

`PoolEnv` is what the loop sees, `pool_crew` the parent's side of the processes, `pool_worker` what runs in them.
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

from datamodules.core.errors import UsageError
from datamodules.core.seeding import env_seeds
from datamodules.core.types import Spaces, Step
from datamodules.env_interface.processes import ENV_TIMEOUT, MakeEnv
from datamodules.env_interface.restarts import Restarts
from datamodules.env_interface.spaces import Array, action_writer, observation_reader, spaces_of
from datamodules.worker_pool.shared_memory import Layout, whole_pages
from datamodules.worker_pool.supervisor import Crew
from datamodules.worker_pool.worker import PATIENT_SPINS, RESET, SLOTS, SPINS, STEP


class PoolEnv:
    """Steps Gymnasium environments in a few processes, in two halves that need not wait for each other.

    `send(half, action)` starts the steps of a half, `receive(half)` waits for them: while one half steps, the policy
    can decide for the other, with the weights of now and the newest observations. `step` is both halves at once.

    Environments are reset in the step that ends their episode. Of their infos only an `action_mask` `[n]` is read, if
    resets bring one. The tensors of a step lie in the shared memory (or are its copy on the device) and are overwritten
    when their rows step again.

    Args:
        makers: one an environment; spaces are those of the first.
        num_workers: processes; one for every core of this program but the loop's own if None (two at least), and never
            more than half the environments.
        ranks: programs like this one that share the host's cores.
        device: where tensors go; through pinned memory if it is a GPU.
        seed: of the first `reset` that is given none.
        timeout: seconds that an environment may take for its start, a reset or a step.
        restart: make environments anew that raise, die or hang: their step is not valid, and its observation the first
            of a new episode. A process that dies or hangs takes all of its environments with it.
        name: the environment, for messages.

    Attributes:
        halves: the rows of either half.
        pinned: whether copies to the device start from pinned memory.

    Raises:
        UsageError: for no environments, no workers, spaces that are not taken and environments that cannot be pickled.
    """

    episode_keys: tuple[str, ...] = ()
    shortest_truncation: int | None = None
    pure = False
    every_final = False

    def __init__(
        self,
        makers: Sequence[MakeEnv],
        *,
        num_workers: int | None = None,
        ranks: int = 1,
        device: torch.device,
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
                raise UsageError(f"{what} is {number}; it must be at least 1.")
        with closing(makers[0]()) as one:
            observation, action = one.observation_space, one.action_space
        self.spaces: Spaces = spaces_of(observation, action, name=name)
        self.num_workers = min(workers, max(1, self.num_envs // 2))
        middle = -(-self.num_envs // 2)
        self.halves = (slice(0, middle), slice(middle, self.num_envs))
        self._write_action = action_writer(action)
        self.restarts = Restarts(name, self.num_envs) if restart else None
        self.phantoms = restart
        self._crew = Crew(
            makers,
            observation_reader(observation),
            halves=self.halves,
            num_workers=self.num_workers,
            spins=PATIENT_SPINS if self.num_workers < cores else SPINS,
            layout=_layout(self.spaces, (action.shape or (), action.dtype), self.num_envs, self.num_workers),
            timeout=timeout,
            restarts=self.restarts,
            name=name,
        )
        self.processes, shared = self._crew.processes, self._crew.shared
        self._terminated: Array = shared.outcome.view(np.bool_)[:, 4]
        self._truncated: Array = shared.outcome.view(np.bool_)[:, 5]
        self._host = _Board(*map(torch.from_numpy, (shared.obs, shared.final_obs, shared.action_mask, shared.outcome)))
        self._here = self._host if device.type == "cpu" else _Board(*(part.to(device) for part in self._host))
        self._pin()

    def reset(self, seed: int | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """Start every environment anew; seeded the first time and whenever a seed is given.

        Returns: observations `[B, *obs]` and, where the environment brings one, `action_mask` `[B, n]` bool.
        """
        seed, self._first_seed = self._first_seed if seed is None else seed, None
        crew = self._crew
        for half in (0, 1):
            if crew.busy(half):
                crew.wait(half)
        crew.shared.seed[:] = -1 if seed is None else env_seeds(seed, self.num_envs)
        for half in (0, 1):
            self._order(RESET, half)
        for half in (0, 1):
            crew.wait(half)
        masked = bool(crew.shared.masked.any())
        rows = (*self.halves, slice(0, self.num_envs))
        self._steps = [[self._here.step(part, masked, final) for final in (False, True)] for part in rows]
        self._copies = [[self._copies_of(half, masked, final) for final in (False, True)] for half in self.halves]
        for half in (0, 1):
            self._bring_noted(half, final=False)
        return self.latest.obs, self.latest.info

    def limit(self, steps: int) -> None:
        """Truncate every episode after so many steps, from the next reset on."""
        self._crew.shared.limit[0] = steps

    def noise(self, steps: int) -> None:
        """None: Gymnasium environments draw their own randomness."""

    def send(self, half: int, action: Tensor) -> None:
        """Start one step of a half.

        Args:
            half: 0 or 1.
            action: for the rows `halves[half]`, `[B, ...]`, 0-based and unclipped, on any device.

        Raises: RuntimeError if the half was not received since it was sent, or the pool is closed.
        """
        self._crew.shared.action[self.halves[half]] = self._write_action(action.numpy(force=True))
        self._order(STEP, half)

    def receive(self, half: int) -> Step:
        """Wait for the step of a half; its rows are `halves[half]`.

        Raises: UsageError for an environment that hung; RuntimeError for one that raised, a process that died, or if
        nothing was sent.
        """
        return self._bring_noted(half, self.wait(half))

    def wait(self, half: int) -> bool:
        """Wait for the step of a half, which stays on the host; whether it has true last observations.

        Raises: UsageError for an environment that hung; RuntimeError for one that raised, a process that died, or if
        nothing was sent.
        """
        self._crew.wait(half)
        rows = self.halves[half]
        if self.restarts is not None:
            self.restarts.steps += rows.stop - rows.start
        ended = self._truncated[rows] | self._terminated[rows] if self.every_final else self._truncated[rows]
        return bool(ended.any())

    def bring(self, half: int, final: bool = False) -> Step:
        """Begin the copies of the newest step of a half to the device; the caller sends when they are made."""
        for target, source in self._copies[half][final]:
            target.copy_(source, non_blocking=self.pinned)
        return self._steps[half][final]

    @property
    def latest(self) -> Step:
        """What both halves brought to the device last, without true last observations."""
        return self._steps[2][False]

    def step(self, action: Tensor, noise: Tensor | None = None) -> Step:
        """Advance every environment by one step.

        Args:
            action: `[B]` or `[B, parts]`, 0-based and unclipped, on any device.
            noise: not used.
        """
        action = action.cpu()
        for half, rows in enumerate(self.halves):
            self.send(half, action[rows])
        parts = [self.receive(half) for half in (0, 1)]
        return self._steps[2][any(part.final_obs is not None for part in parts)]

    def state_dict(self) -> dict[str, object]:
        """Empty: a Gymnasium environment cannot be saved in general, so a resumed run begins new episodes."""
        return {}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Nothing to restore; the caller resets."""

    def close(self) -> None:
        """End the processes; once is enough, more often does no harm."""
        self._crew.close()
        if self._unpin is not None:
            self._unpin()

    def _order(self, kind: int, half: int) -> None:
        """Let workers write to a half again, once its copies to the device are made."""
        if self._copied:
            self._copied[half].synchronize()
        self._crew.order(kind, half)

    def _bring_noted(self, half: int, final: bool) -> Step:
        """`bring`, and note when the copies are made, so that the next order waits for it."""
        step = self.bring(half, final)
        if self._copied:
            self._copied[half].record()
        return step

    def _copies_of(self, rows: slice, masked: bool, final: bool) -> list[tuple[Tensor, Tensor]]:
        """Target and source of every copy that brings these rows to the device; none if they are there."""
        if self._here is self._host:
            return []
        names = ["obs", "outcome", *["action_mask"] * masked, *["final_obs"] * final]
        return [(getattr(self._here, name)[rows], getattr(self._host, name)[rows]) for name in names]

    def _pin(self) -> None:
        """Pin the shared memory if the device is a GPU, so that copies to it neither stage nor wait."""
        self.pinned, self._copied, self._unpin = False, cast(tuple[torch.cuda.Event, ...], ()), None
        if self.device.type != "cuda":
            return
        block = torch.from_numpy(whole_pages(self._crew.memory))
        with torch.cuda.device(self.device):
            failure = int(torch.cuda.cudart().cudaHostRegister(block.data_ptr(), block.numel(), 0))
        if failure:
            rank_zero_warn(
                f"The pool's memory could not be pinned (CUDA error {failure}): copies to the GPU are slower."
            )
            return
        self.pinned, self._copied = True, (torch.cuda.Event(), torch.cuda.Event())
        self._unpin = Finalize(self, _unpin, (block,), exitpriority=5)


class _Board(NamedTuple):
    """What comes back from a step, as tensors; see `pool_worker.Shared`."""

    obs: Tensor
    final_obs: Tensor
    action_mask: Tensor
    outcome: Tensor

    def step(self, rows: slice, masked: bool, final: bool) -> Step:
        """A Step of these rows that shares their memory."""
        outcome = self.outcome[rows]
        terminated, truncated, valid = outcome.view(torch.bool)[:, 4:7].unbind(1)
        return Step(
            obs=self.obs[rows],
            reward=outcome.view(torch.float32)[:, 0],
            terminated=terminated,
            truncated=truncated,
            final_obs=self.final_obs[rows] if final else None,
            valid=valid,
            info={"action_mask": self.action_mask[rows]} if masked else {},
        )


def _layout(spaces: Spaces, action: tuple[tuple[int, ...], Any], num_envs: int, num_workers: int) -> Layout:
    obs = (num_envs, *spaces["obs_shape"]), spaces["obs_dtype"]
    shape, dtype = action
    return {
        "obs": obs,
        "final_obs": obs,
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
        "orders": ((SLOTS,), "uint8"),
        "closing": ((1,), "uint8"),
    }


def cores_of_rank(ranks: int) -> int:
    """Cores that this program may use, where so many like it share the host."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // ranks)


def _unpin(block: Tensor) -> None:
    torch.cuda.cudart().cudaHostUnregister(block.data_ptr())
