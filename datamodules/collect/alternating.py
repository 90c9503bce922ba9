"""AlternatingCollector: step one half of a worker pool while the policy selects actions for the other half."""

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from datamodules.collect.collector import RolloutCollector
from datamodules.collect.rollout_buffer import BufferSlot, CollectorState
from datamodules.core.phase import Phase
from datamodules.core.protocols import Policy, VectorEnv
from datamodules.core.pytree import join_parts, strip_prefix, tree_map
from datamodules.core.types import State, VectorStep, select_masks
from datamodules.worker_pool.vector_env import WorkerPoolVectorEnv


class AlternatingCollector(RolloutCollector):
    """RolloutCollector that keeps a worker pool and the policy busy at the same time.

    Every action is computed from the newest observation of its rows and the current weights. No step is
    pending when a rollout ends.
    """

    noise: Tensor
    policy_state: State

    def __init__(self, envs: VectorEnv, policy: Policy, rollout_length: int, generator: torch.Generator, name: str):
        super().__init__(envs, policy, rollout_length, generator, name)
        self.pool = cast(WorkerPoolVectorEnv, envs)
        self.policy_runners = self.groups = [EnvGroup(self, half) for half in (0, 1)]

    def run(self, state: CollectorState, noise: Tensor, env_noise: Tensor | None) -> tuple[CollectorState, Tensor]:
        """Run T steps, alternating between the halves; return the new state and the totals of finished episodes."""
        self.buffer.start(state)
        self.noise.copy_(noise)
        for name, leaf in state.policy_state.items():
            self.policy_state[name].copy_(leaf)
        for t in range(self.rollout_length):
            for half in self.groups:
                half.send(t)
        for half in self.groups:
            half.receive()
        step = self.pool.last_step
        episode_start = step.terminated | step.truncated | ~step.valid
        obs, masks = tree_map(lambda part: part[-1], self.buffer.obs), select_masks(step.info)
        state = state._replace(obs=obs, masks=masks, policy_state=self.policy_state, episode_start=episode_start)
        return self.buffer.finalize(state)

    def _allocate(self, noise: Tensor) -> None:
        super()._allocate(noise)
        self.noise = torch.empty_like(noise)
        self.policy_state = tree_map(torch.empty_like, self.state.policy_state)
        for half in self.groups:
            half.allocate()


class EnvGroup:
    """Half of the rows, and the computation between two of its steps, captured as one launch on a GPU.

    For the capture, the environments' result and the step number are read from host memory (pinned with a GPU), the
    action is written to it, and all other tensors have fixed addresses.

    Args:
        collector: collector whose rows, storage and policy are used.   half: 0 or 1.

    Attributes:
        phase: `run_turn`, eager, compiled or captured.
    """

    noise: Tensor
    policy_state: State
    action: Tensor
    slots: list[BufferSlot]

    def __init__(self, collector: "AlternatingCollector", half: int):
        self.collector, self.half, self.rows = collector, half, collector.pool.groups[half]
        self.device = collector.pool.device
        self.pinned = self.device.type == "cuda"
        self.host_t = torch.zeros(1, dtype=torch.int64, pin_memory=self.pinned)
        self._host_t_array = self.host_t.numpy()
        self.slot_index = 0
        self.t, self.previous_t = (torch.zeros(1, dtype=torch.int64, device=self.device) for _ in range(2))
        self.phase: Phase[tuple[()]] = Phase(
            self.run_turn,
            self.device,
            name="acting",
            compile_targets=[(self, "step")] if getattr(collector.policy, "compilable", True) else [],
            mutated_tensors=lambda: self.policy_state.values(),
            timed=False,
        )

    def allocate(self) -> None:
        """Create the views of this half into the collector's storage, once that is allocated."""
        columns = self.collector.buffer.storage.items()
        storage = {name: column[:, self.rows] for name, column in columns if not name.startswith("state/")}
        self.noise = self.collector.noise[:, self.rows]
        self.policy_state = tree_map(lambda leaf: leaf[self.rows], self.collector.policy_state)
        self.action = torch.empty_like(storage["action"][0], device="cpu", pin_memory=self.pinned)
        steps = range(self.collector.rollout_length + 1)
        indices = [(self.t, self.previous_t)] if self.pinned else [(t, max(t - 1, 0)) for t in steps]
        self.slots = [_slot_at(storage, *each) for each in indices]

    def send(self, t: int) -> None:
        """Wait for step t - 1, select the actions of step t, and send them."""
        self._wait(t)
        self._host_t_array[0] = t
        self.phase()
        if self.pinned:
            torch.cuda.current_stream(self.device).synchronize()
        self.collector.pool.send(self.half, self.action)

    def receive(self) -> None:
        """Wait for the last step of a rollout, and store it."""
        self._wait(self.collector.rollout_length)
        self.t.fill_(self.collector.rollout_length)
        self.store_step(self.collector.pool.copy_to_device(self.half), self.slots[self.slot_index])

    def run_turn(self) -> tuple[()]:
        """Copy the result of step t - 1, call `step`, and copy the action of step t to the host."""
        self.t.copy_(self.host_t, non_blocking=True)
        action = self.step(self.collector.pool.copy_to_device(self.half), self.slots[self.slot_index])
        self.action.copy_(action, non_blocking=True)
        return ()

    def step(self, step: VectorStep, slot: BufferSlot) -> Tensor:
        """Store the result of the previous step; select and store the next action, and return it."""
        state = self.store_step(step, slot)
        noise = self.noise.index_select(0, self.t)[0]
        output, policy_state = self.collector.call_policy(state, noise, slot, self.collector.policy.act)
        for name, leaf in policy_state.items():
            self.policy_state[name].copy_(leaf)
        return output.action

    def store_step(self, step: VectorStep, slot: BufferSlot) -> CollectorState:
        """Store the result of step t - 1 and return the policy input of step t; at t = 0, slot 0 is temporary."""
        self.previous_t.copy_((self.t - 1).clamp(min=0))
        masks, ended = self.collector.buffer.store_step(step, slot)
        episode_start = torch.where(self.t > 0, ended, self.collector.buffer.storage["episode_start"][0, self.rows])
        return self.collector.state._replace(
            obs=step.obs, masks=masks, policy_state=self.policy_state, episode_start=episode_start
        )

    def _wait(self, t: int) -> None:
        """Wait for step t - 1 and store the true last observations of its truncated rows."""
        pool, self.slot_index = self.collector.pool, 0 if self.pinned else t
        if t and pool.wait(self.half):
            self.collector.buffer.store_final_obs(
                self.collector.buffer.steps[t - 1], pool.copy_to_device(self.half, final=True), self.rows.start
            )


class _DynamicSlot(NamedTuple):
    """Step of a column `[T, B, ...]` whose number `t` `[1]` is a device tensor."""

    column: Tensor
    t: Tensor

    def copy_(self, value: Tensor) -> None:
        """Write the value into the column at step t."""
        self.column.index_copy_(0, self.t, value.unsqueeze(0).to(self.column.dtype))


def _slot_at(storage: dict[str, Tensor], t: int | Tensor, previous_t: int | Tensor) -> BufferSlot:
    """Return views of the slots of steps t and t - 1; `_DynamicSlot`s if t is a device tensor."""

    def at(column: Tensor, index: int | Tensor) -> Tensor:
        if isinstance(index, int):
            return column[min(index, len(column) - 1)]
        return cast(Tensor, _DynamicSlot(column, index))

    result: dict[str, Any] = {
        name: at(storage[name], previous_t) for name in ("reward", "terminated", "truncated", "valid")
    }
    extras = {name: at(column, t) for name, column in strip_prefix("extras/", storage).items()}
    obs = tree_map(lambda column: at(column, t), join_parts("obs", storage))
    return BufferSlot(obs, at(storage["action"], t), **result, extras=extras, episode={})
