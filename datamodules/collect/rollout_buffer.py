"""RolloutBuffer: storage of one rollout, and the state carried between the steps of a collector."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from datamodules.collect.agent_rows import agent_mean, any_agent, merge_agents
from datamodules.core.protocols import VectorEnv
from datamodules.core.pytree import (
    add_prefix,
    copy_tree_,
    join_parts,
    name_parts,
    strip_prefix,
    tree_leaves,
    tree_map,
)
from datamodules.core.types import (
    MetricVector,
    Obs,
    PolicyOutput,
    Rollout,
    State,
    VectorStep,
    select_masks,
    select_rewards,
)


class CollectorState(NamedTuple):
    """State carried from one step to the next; every leaf is `[B, ...]`.

    obs, masks: policy input.   policy_state: state of a recurrent policy.   env_state: of on-device environments.
    episode_start: rows at an episode start.   return_, length: of the environments' running episodes, up to the
        current rollout, `[num_envs]`.
    """

    obs: Obs
    masks: State
    policy_state: State
    env_state: State
    episode_start: Tensor
    return_: Tensor
    length: Tensor


class BufferSlot(NamedTuple):
    """Views of the rollout's columns for one step; obs is the observation after the step.

    step: steps the environments with an action, if they are not on-device environments.
    episode_start: True where the next observation starts an episode; None unless the environment writes its step into
        this slot.
    """

    obs: Obs
    action: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    extras: dict[str, Tensor]
    episode: dict[str, Tensor]
    step: Callable[[Tensor], VectorStep] | None = None
    episode_start: Tensor | None = None


class RolloutBuffer:
    """Storage of T steps of B rows, allocated once and overwritten by every rollout.

    Args:
        envs: the environments whose steps are stored.
        rollout_length: T.

    Attributes:
        storage: columns `[T, B, ...]`; `obs`, or `obs/PART`, is `[T+1, B, *obs]`, and `state/NAME` the policy state
            before step 0.
        final_states: last states of truncated rows of on-device environments, one slot per row; with several agents,
            which share a state, their observations.
        final_obs, final_step: see `Rollout`.
        num_members: members of a population, which have equal parts of the rows; 1 for a single agent.
    """

    def __init__(self, envs: VectorEnv, rollout_length: int):
        self.device, self.rollout_length = envs.device, rollout_length
        self.num_envs, self.num_agents = envs.num_envs, envs.spaces["num_agents"]
        self.num_rows = self.num_envs * self.num_agents
        self.num_members = getattr(envs, "num_members", 1)
        self.can_fail = envs.has_invalid_steps and not envs.is_stateless
        self.has_invalid_steps, self.episode_stat_keys = envs.has_invalid_steps, envs.episode_stat_keys
        self.storage: dict[str, Tensor] = {}
        self.steps = torch.arange(rollout_length, device=self.device).unbind()
        self._counts = torch.arange(1, rollout_length + 1, device=self.device).unsqueeze(1)
        self.final_states: State = {}
        self.final_obs: Obs | None = None
        self.final_step = torch.full((1, self.num_rows), -1, device=self.device)

    def allocate(self, state: CollectorState, output: PolicyOutput, info: dict[str, Tensor]) -> None:
        """Allocate every column with the shapes and dtypes of one state and one policy output.

        Args:
            info: of the state, from an on-device environment, `{name: [B]}`; empty for other environments.
        """
        columns = {"episode_start": state.episode_start, "action": output.action}
        columns["reward"] = torch.zeros(self.num_rows, device=self.device)
        columns |= dict.fromkeys(("terminated", "truncated", "valid"), state.episode_start)
        columns |= add_prefix("extras/", output.extras | state.masks)
        if state.env_state:
            columns |= add_prefix("episode/", {key: info[key] for key in self.episode_stat_keys})
            columns |= add_prefix("extras/", select_rewards(info))
            final_states = state.env_state if self.num_agents == 1 else name_parts("obs", state.obs)
            self.final_states = {name: leaf.clone() for name, leaf in final_states.items()}
            self.final_obs = tree_map(lambda part: torch.zeros_like(part).unsqueeze(0), state.obs)
        self.storage = {name: allocate_column(self.rollout_length, value) for name, value in columns.items()}
        self.storage |= {"state/" + name: torch.empty_like(leaf) for name, leaf in state.policy_state.items()}
        parts = name_parts("obs", state.obs)
        self.storage |= {name: allocate_column(self.rollout_length + 1, part) for name, part in parts.items()}
        self.storage["valid"].fill_(True)

    @property
    def obs(self) -> Obs:
        """Return the observations `[T+1, B, *obs]`."""
        return join_parts("obs", self.storage)

    def slot(self, t: int) -> BufferSlot:
        """Return views of step t in every column; its next observation is stored at t + 1."""
        columns: dict[str, Any] = {
            name: self.storage[name][t] for name in ("action", "reward", "terminated", "truncated", "valid")
        }
        extras, episode = (
            {name: column[t] for name, column in strip_prefix(group, self.storage).items()}
            for group in ("extras/", "episode/")
        )
        obs = tree_map(lambda part: part[t + 1], self.obs)
        return BufferSlot(**columns, obs=obs, extras=extras, episode=episode)

    def start(self, state: CollectorState) -> None:
        """Store the first observation, episode starts and policy state of a rollout."""
        self.final_step.fill_(-1)
        copy_tree_(tree_map(lambda part: part[0], self.obs), state.obs)
        self.storage["episode_start"][0] = state.episode_start
        for name, leaf in state.policy_state.items():
            self.storage["state/" + name].copy_(leaf)

    def store_output(self, slot: BufferSlot, output: PolicyOutput, masks: State) -> None:
        """Store the action, the extras and the masks of a step."""
        slot.action.copy_(output.action)
        for name, value in (output.extras | masks).items():
            slot.extras[name].copy_(value)

    def store_step(self, step: VectorStep, slot: BufferSlot) -> tuple[State, Tensor]:
        """Store the result of the environments; return the masks of the next observation and its episode starts."""
        if slot.episode_start is not None:
            return select_masks(step.info), slot.episode_start
        copy_tree_(slot.obs, step.obs)
        slot.reward.copy_(step.reward)
        slot.terminated.copy_(step.terminated)
        slot.truncated.copy_(step.truncated)
        if self.has_invalid_steps:
            slot.valid.copy_(step.valid)
        for name, column in slot.episode.items():
            column.copy_(step.info[name])
        for name, value in select_rewards(step.info).items():
            slot.extras[name].copy_(value)
        episode_start = step.terminated | step.truncated
        return select_masks(step.info), episode_start | ~step.valid if self.has_invalid_steps else episode_start

    def store_final_state(self, t: Tensor, step: VectorStep, last: Callable[[], State], slots: State) -> None:
        """Store the states of truncated rows; one slot per row: rollouts are at most `min_truncation_step` long.

        Args:
            last: returns the states before resets, or what is kept of them (see `final_states`).
        """
        truncated = step.truncated & ~step.terminated
        eager = self.device.type == "cpu" and not torch.compiler.is_compiling()
        if eager and not truncated.any():
            return
        for name, leaf in last().items():
            keep = truncated.view(-1, *[1] * (leaf.dim() - 1))
            slots[name].copy_(torch.where(keep, leaf, slots[name]))
        self.final_step[0].copy_(torch.where(truncated, t, self.final_step[0]))

    def store_final_obs(self, t: Tensor, step: VectorStep, first_row: int = 0) -> None:
        """Store the true last observations of truncated rows; `step` may hold only the rows from `first_row` on."""
        if step.final_obs is None:
            return
        truncated_rows = (step.truncated & ~step.terminated).nonzero()[:, 0]
        self.append_final_obs(t, truncated_rows, step.final_obs, first_row)

    def append_final_obs(self, t: Tensor, index: Tensor, final_obs: Obs, first_row: int = 0) -> None:
        """Store the true last observations at `index` of step t in free slots; add slots if needed."""
        rows = index + first_row
        slots = (self.final_step[:, rows] >= 0).sum(0)
        if self.final_obs is None:
            self.final_obs = self._empty_final_obs()
        if rows.numel() and int(slots.max()) == self.final_step.shape[0]:
            self.final_obs = tree_map(lambda part: torch.cat([part, torch.zeros_like(part)]), self.final_obs)
            self.final_step = torch.cat([self.final_step, torch.full_like(self.final_step, -1)])
        for stored, part in zip(tree_leaves(self.final_obs), tree_leaves(final_obs), strict=True):
            stored[slots, rows] = part[index]
        self.final_step[slots, rows] = t

    def finalize(self, state: CollectorState) -> tuple[CollectorState, Tensor]:
        """Set the episode starts and return the totals of finished episodes, as differences of cumulative sums.

        On a CPU the differences are computed only if an episode ended, elsewhere always; the results are equal.
        """
        storage = self.storage
        done, valid = storage["terminated"] | storage["truncated"], storage["valid"]
        torch.logical_or(done[:-1], ~valid[:-1], out=storage["episode_start"][1:])
        ended = done & valid
        if self.can_fail and (failed := ~valid & ~storage["episode_start"]).any():
            return self._finalize_with_failures(state, ended, failed)
        reward, ended, valid = merge_agents(storage["reward"], ended, valid, self.num_agents)
        reward, length = reward.cumsum(0, dtype=torch.float64), valid.cumsum(0)
        if self.device.type == "cpu" and not ended.any():
            running = state._replace(return_=state.return_ + reward[-1], length=state.length + length[-1])
            members = () if self.num_members == 1 else (self.num_members,)
            return running, state.return_.new_zeros(3 + len(self.episode_stat_keys), *members)
        last = (ended * self._counts).amax(0)
        index = (last - 1).clamp(min=0).unsqueeze(0)
        reward_last, length_last = reward.gather(0, index)[0], length.gather(0, index)[0]
        totals = [
            ended,
            (state.return_ + reward_last) * (last > 0),
            (state.length + length_last) * (last > 0),
            *(agent_mean(storage["episode/" + key], self.num_agents) * ended for key in self.episode_stat_keys),
        ]
        return_ = reward[-1] + torch.where(last > 0, -reward_last, state.return_)
        length = length[-1] + torch.where(last > 0, -length_last, state.length)
        running = state._replace(return_=return_, length=length)
        return running, torch.stack([self._sum(total).double() for total in totals])

    def _sum(self, values: Tensor) -> Tensor:
        """Return the sum over all rows and steps, 0-d; over those of each member of a population, `[members]`."""
        if self.num_members == 1:
            return values.sum()
        return values.unflatten(-1, (self.num_members, -1)).movedim(-2, 0).flatten(1).sum(1)

    def _finalize_with_failures(
        self, state: CollectorState, ended: Tensor, failed: Tensor
    ) -> tuple[CollectorState, Tensor]:
        """Do the same as `finalize` if environments failed during an episode, which is excluded from the totals.

        The step before a failure is truncated: its value is bootstrapped from its own next observation.
        """
        storage, return_, length = self.storage, state.return_, state.length
        reward, ended, valid = merge_agents(storage["reward"], ended, storage["valid"], self.num_agents)
        failed_envs = any_agent(failed, self.num_agents)
        totals = return_.new_zeros(3 + len(self.episode_stat_keys))
        for t in range(self.rollout_length):
            return_, length = return_ + reward[t], length + valid[t]
            values = [agent_mean(storage["episode/" + key][t], self.num_agents) for key in self.episode_stat_keys]
            totals += torch.stack([(ended[t] * each).sum().double() for each in (ended[t], return_, length, *values)])
            done = ended[t] | failed_envs[t]
            return_, length = return_.masked_fill(done, 0), length.masked_fill(done, 0)
            if t and failed[t].any():
                obs = tree_map(lambda part, t=t: part[t], self.obs)
                self.append_final_obs(self.steps[t - 1], failed[t].nonzero()[:, 0], obs)
                storage["truncated"][t - 1] |= failed[t]
        return state._replace(return_=return_, length=length), totals

    def rollout(self, episodes: Tensor) -> Rollout:
        """Return views of the storage; `episodes` holds the totals of finished episodes."""
        storage = self.storage
        columns = ("action", "reward", "terminated", "truncated", "valid", "episode_start")
        return Rollout(
            obs=self.obs,
            **{name: storage[name] for name in columns},
            final_obs=self._empty_final_obs() if self.final_obs is None else self.final_obs,
            final_step=self.final_step,
            state=strip_prefix("state/", storage),
            extras=strip_prefix("extras/", storage),
            episodes=MetricVector(("count", "return", "length", *self.episode_stat_keys), episodes),
            has_invalid_steps=self.has_invalid_steps,
            env_steps=self._env_steps(),
            agent_steps=None if self.num_agents == 1 else storage["valid"].sum(),
        )

    def _env_steps(self) -> int:
        """Return the valid steps of the rollout, counted once for all agents of an environment."""
        if not self.can_fail:
            return self.rollout_length * self.num_envs
        return int(any_agent(self.storage["valid"], self.num_agents).sum())

    def _empty_final_obs(self) -> Obs:
        """Return one slot of zeros for every row."""
        return tree_map(lambda part: torch.zeros_like(part[:1]), self.obs)


def allocate_column(length: int, value: Tensor) -> Tensor:
    """Allocate `[length, ...]` with the shape `[...]`, dtype and device of a value."""
    return torch.empty((length, *value.shape), dtype=value.dtype, device=value.device)
