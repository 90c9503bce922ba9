"""RolloutCollector: step environments with a policy and store rollouts."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from datamodules.collect.finite_check import FiniteCheck
from datamodules.collect.policy_runner import PolicyRunner
from datamodules.collect.rollout_buffer import BufferSlot, CollectorState, RolloutBuffer
from datamodules.core.phase import Phase
from datamodules.core.protocols import Policy, StatelessVectorEnv, VectorEnv
from datamodules.core.pytree import copy_tree_, join_parts, name_parts, tree_map
from datamodules.core.seeding import restore_generator
from datamodules.core.types import PolicyInput, PolicyOutput, Rollout, State, insert_masks
from datamodules.env_interface.env_errors import OWN_CODE, exits_refused

CPU_CHUNK = 2
"""Steps compiled together on a CPU, where the call overhead is as large as a step; a GPU captures the whole rollout."""


class RolloutCollector:
    """Collector that steps B environment rows with a policy, T steps at a time, into storage allocated once.

    A rollout is a view of that storage: use it before collecting the next one. With an on-device environment a step is
    a pure function of `CollectorState` and noise, so that several steps can be compiled and a whole rollout captured.

    Args:
        envs: vector environment, not yet reset.
        policy: policy; its current parameters are used at every step, without a copy.
        rollout_length: T, steps per row and rollout.
        generator: generator of the policy's noise, on the device of `envs`.
        name: name of the environment in messages.

    Attributes:
        phase: collection of one rollout.
        policy_runners: callables that select actions, each for a part of the rows; they have a `phase`.
    """

    state: CollectorState
    policy_runners: Sequence[Any]

    def __init__(self, envs: VectorEnv, policy: Policy, rollout_length: int, generator: torch.Generator, name: str):
        self.envs, self.policy, self.rollout_length, self.generator = envs, policy, rollout_length, generator
        self.stateless_envs = cast(StatelessVectorEnv, envs) if envs.is_stateless else None
        compile_targets = []
        if self.stateless_envs and getattr(policy, "compilable", True):
            compile_targets = [(self, "run_chunk")]
        self.chunk_size = CPU_CHUNK if envs.device.type == "cpu" and rollout_length % CPU_CHUNK == 0 else 1
        self.phase = Phase(
            self.run, envs.device, name="collect", compile_targets=compile_targets, capturable=envs.is_stateless
        )
        self.policy_runners = [PolicyRunner(policy, envs.device)]
        self.runs_policy_apart = self.stateless_envs is None and envs.device.type != "cpu"
        self.buffer = RolloutBuffer(envs, rollout_length)
        self._slots: list[BufferSlot] = []
        self.finite_check = FiniteCheck(name, envs.spaces["num_agents"])

    def reset(self, seed: int) -> None:
        """Reset every environment and the policy state."""
        obs, masks = self.envs.reset(seed)
        episode_start = torch.ones(self.rows, dtype=torch.bool, device=self.envs.device)
        return_ = torch.zeros(self.envs.num_envs, dtype=torch.float64, device=self.envs.device)
        policy_state = self.policy.initial_state(self.rows)
        env_state = self.stateless_envs.state if self.stateless_envs else {}
        self.state = CollectorState(
            obs, masks, policy_state, env_state, episode_start, return_, return_.to(torch.int64)
        )

    @property
    def rows(self) -> int:
        """Return B, the number of rows of a rollout."""
        return self.buffer.num_rows

    @torch.no_grad()
    def collect(self) -> Rollout:
        """Collect one rollout of `rollout_length` steps with the current policy.

        Raises: NonFiniteError for NaN and infinities from the environment; on a GPU in the next call, to avoid
            synchronization.
        """
        self.finite_check.finish()
        noise = self.policy.noise((self.rollout_length, self.rows), self.generator)
        env_noise = self.envs.noise(self.rollout_length)
        if not self.buffer.storage:
            self._allocate(noise)
        with exits_refused(OWN_CODE):
            self.state, episodes = self.phase(self.state, noise, env_noise)
        if self.stateless_envs:
            self.stateless_envs.state = self.state.env_state
        torch.clear_autocast_cache()
        rollout = self.buffer.rollout(episodes)
        self.finite_check.start(rollout, has_final_obs=self.buffer.final_obs is not None)
        return rollout

    def run(self, state: CollectorState, noise: Tensor, env_noise: Tensor | None) -> tuple[CollectorState, Tensor]:
        """Run T steps into storage; return the new state and the totals of finished episodes."""
        self.buffer.start(state)
        step_noise = [state.episode_start] * self.rollout_length if env_noise is None else env_noise.unbind()
        steps = [*zip(noise.unbind(), step_noise, self.buffer.steps, self._slots, strict=True)]
        for start in range(0, self.rollout_length, self.chunk_size):
            state = self.run_chunk(state, steps[start : start + self.chunk_size], self.buffer.final_states)
        if self.stateless_envs and self.buffer.final_obs is not None:
            final_states, one_agent = self.buffer.final_states, self.buffer.num_agents == 1
            final_obs = self.stateless_envs.observation(final_states) if one_agent else join_parts("obs", final_states)
            copy_tree_(tree_map(lambda part: part[0], self.buffer.final_obs), final_obs)
        return self.buffer.finalize(state)

    def run_chunk(
        self, state: CollectorState, steps: Sequence[tuple[Tensor, Tensor, Tensor, BufferSlot]], final_states: State
    ) -> CollectorState:
        """Run several steps; the unit that is compiled."""
        for step in steps:
            state = self.step(state, *step, final_states)
        return state

    def step(
        self, state: CollectorState, noise: Tensor, env_noise: Tensor, t: Tensor, slot: BufferSlot, final_states: State
    ) -> CollectorState:
        """Run one step and store it in `slot`; store the last states of truncated rows in `final_states`."""
        policy = self.policy_runners[0] if self.runs_policy_apart else self.policy.act
        output, policy_state = self.call_policy(state, noise, slot, policy)
        if self.stateless_envs:
            env_state, step, last = self.stateless_envs.stateless_step(state.env_state, output.action, env_noise)
            self.buffer.store_final_state(t, step, partial(self.final_state, last), final_states)
        else:
            assert slot.step is not None
            env_state, step = state.env_state, slot.step(output.action)
            self.buffer.store_final_obs(t, step)
        masks, episode_start = self.buffer.store_step(step, slot)
        obs = step.obs if self.stateless_envs else slot.obs
        return CollectorState(obs, masks, policy_state, env_state, episode_start, state.return_, state.length)

    def final_state(self, last: State) -> State:
        """Return what is stored of a state before resets: all of it, or the observations that its agents have."""
        assert self.stateless_envs is not None
        return last if self.buffer.num_agents == 1 else name_parts("obs", self.stateless_envs.observation(last))

    def call_policy(
        self, state: CollectorState, noise: Tensor, slot: BufferSlot, policy: Callable[..., tuple[PolicyOutput, State]]
    ) -> tuple[PolicyOutput, State]:
        """Call the policy, and store the masks, action and extras."""
        policy_state = insert_masks(state.policy_state, state.masks)
        inputs = PolicyInput(state.obs, policy_state, state.episode_start, state.masks.get("action_mask"))
        output, policy_state = policy(inputs, noise)
        self.buffer.store_output(slot, output, state.masks)
        return output, policy_state

    def _allocate(self, noise: Tensor) -> None:
        """Allocate the buffer, with shapes and dtypes from one policy call."""
        state = self.state
        policy_state, mask = insert_masks(state.policy_state, state.masks), state.masks.get("action_mask")
        output, _ = self.policy.act(PolicyInput(state.obs, policy_state, state.episode_start, mask), noise=noise[0])
        self.buffer.allocate(state, output, self.stateless_envs.info(state.env_state) if self.stateless_envs else {})
        self._slots = [self._bind(self.buffer.slot(t)) for t in range(self.rollout_length)]

    def _bind(self, slot: BufferSlot) -> BufferSlot:
        """Add the environments' step; on a CPU Gymnasium environments write their result into the slot."""
        envs: Any = self.envs
        if envs.device.type != "cpu" or not hasattr(envs, "step_buffers"):
            return slot._replace(step=envs.step)
        names = ("obs", "reward", "terminated", "truncated", "valid")
        place = envs.step_buffers(**{name: getattr(slot, name) for name in names})
        return slot._replace(step=partial(envs.step, place=place), episode_start=place.episode_start)

    def state_dict(self) -> dict[str, Any]:
        """Return plain types and copies of the tensors that determine the next rollout."""
        envs = self.envs.state_dict()
        state = {name: leaf for name, leaf in self.state._asdict().items() if envs and name != "env_state"}
        return {"generator": self.generator.get_state(), "envs": envs, "state": tree_map(torch.clone, state)}

    def load_state_dict(self, state: dict[str, Any]) -> bool:
        """Restore from `state_dict`, on the device of the environments.

        Returns: False if the environments could not be saved; their episodes are reset.
        """
        restore_generator(self.generator, state["generator"])
        if not state["envs"]:
            self.reset(int(torch.randint(2**31, (1,), generator=self.generator, device=self.generator.device)))
            return False
        self.envs.load_state_dict(state["envs"])
        leaves = tree_map(lambda leaf: leaf.to(self.envs.device, copy=True), state["state"])
        self.state = CollectorState(**leaves, env_state=self.stateless_envs.state if self.stateless_envs else {})
        return True
