"""HerReplayBuffer: hindsight experience replay, which relabels sampled transitions with goals achieved later."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from datamodules.buffers.n_step_replay import NStepReplayBuffer
from datamodules.buffers.ring_buffer import ENDED, TERMINATED, TRUNCATED, RingBuffer
from datamodules.buffers.sum_tree import SumTree
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import ReplayBatch, Rollout, SpaceSpec

GOAL_PARTS = ("observation", "achieved_goal", "desired_goal")
"""Parts of the observations of a goal environment."""

GoalSelectionStrategy = Literal["future", "final", "episode"]
ComputeReward = Callable[[Any, Any, Any], Any]
"""`compute_reward(achieved_goal, desired_goal, info)` of a goal environment."""


class HerReplayBuffer(NStepReplayBuffer):
    """Replay buffer of single steps, some of which are sampled as if the goal had been one achieved in their episode.

    The share n / (n + 1) of the sampled transitions gets another goal, an achieved one of the same episode: of a later
    step or the same one (`future`), of the newest stored step (`final`), or of any stored step (`episode`). The reward
    of `compute_reward` replaces theirs, `terminated` does not change. The last observation of a terminated episode is
    not stored, so that its goal is never chosen; a transition without a goal to choose keeps its own.

    Args:
        ring: ring buffer whose observations have the parts `achieved_goal` and `desired_goal`.
        device: device of the minibatches.
        has_invalid_steps: whether stored steps can be invalid.
        priorities: sum tree with one entry per stored step; None samples uniformly.
        compute_reward: reward of batches of goals, `[M, *goal]` each, float arrays.
        n_sampled_goal: n, transitions with another goal for each one with its own.
        goal_selection_strategy: future | final | episode.

    Source: Andrychowicz et al. 2017, arXiv:1707.01495, section 3.2 and appendix A.
    """

    def __init__(
        self,
        ring: RingBuffer,
        device: torch.device,
        *,
        has_invalid_steps: bool,
        priorities: SumTree | None = None,
        compute_reward: ComputeReward,
        n_sampled_goal: int = 4,
        goal_selection_strategy: GoalSelectionStrategy = "future",
    ):
        super().__init__(ring, 1, device, has_invalid_steps=has_invalid_steps, priorities=priorities)
        self.compute_reward, self.strategy = batched_reward(compute_reward), goal_selection_strategy
        self.relabelled_share = n_sampled_goal / (n_sampled_goal + 1)
        shape = (ring.capacity, ring.num_rows)
        self.episode = torch.zeros(shape, dtype=torch.int64, device=ring.device)
        self.first_step, self.last_step = (torch.full_like(self.episode, -1) for _ in range(2))
        self.current_episode = torch.zeros(ring.num_rows, dtype=torch.int64, device=ring.device)
        self._next_episode = self.current_episode.clone()

    def write(self, rollout: Rollout, masks: dict[str, Tensor]) -> None:
        """Store a rollout, the episode of every step, and the first and last step of every episode."""
        super().write(rollout, masks)
        start, valid = rollout.episode_start.to(self.ring.device), rollout.valid.to(self.ring.device)
        step = (self.ring.counts[0] + torch.arange(len(start), device=start.device)).unsqueeze(1).expand_as(start)
        episode = self.current_episode + start.long().cumsum(0)
        slot = episode % self.ring.capacity
        self.episode.index_copy_(0, step[:, 0] % self.ring.capacity, episode)
        for steps, counts in ((self.first_step, start), (self.last_step, valid)):
            steps.scatter_reduce_(0, slot, torch.where(counts, step, -1), "amax")
        self._next_episode.copy_(episode[-1])

    def commit_(self) -> None:
        """Advance the position behind the rollout written last."""
        super().commit_()
        self.current_episode.copy_(self._next_episode)

    def noise(self, updates: int, batch: int, generator: torch.Generator) -> Tensor:
        """Draw uniforms for `sample`; the last two of each transition choose its goal."""
        uniforms = torch.rand((updates, batch, 2), dtype=torch.float64, device=generator.device, generator=generator)
        return torch.cat([super().noise(updates, batch, generator), uniforms], -1)

    def sample(self, noise: Tensor) -> ReplayBatch:
        """Return minibatches `[U, N]` with relabelled goals; copies goals to the host and rewards back."""
        batch = super().sample(noise[..., :-2])
        entry, uniforms = batch.indices.flatten().to(self.ring.device), noise[..., -2:].flatten(0, 1)
        goal, chosen = self.choose_goals(entry, *uniforms.to(self.ring.device).unbind(-1))
        return self._relabel(batch, goal.to(self.device), chosen.to(self.device))

    def choose_goals(self, entry: Tensor, relabel: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        """Return achieved goals `[M, *goal]` for the transitions at indices `[M]`, and which are to be relabelled.

        Args:
            relabel, place: uniforms in [0, 1): whether to relabel, and which step's goal to take.
        """
        ring, rows = self.ring, entry % self.ring.num_rows
        newest = ring.counts[0] - 1
        step = newest - (newest - entry // ring.num_rows) % ring.capacity
        slot = self.episode.flatten()[entry] % ring.capacity
        last = self.last_step[slot, rows]
        terminated = (ring.gather("flags", self._entry_of(last, rows)) & TERMINATED) > 0
        latest, earliest = last - terminated.long(), step
        if self.strategy == "final":
            earliest = torch.maximum(step, latest)
        elif self.strategy == "episode":
            earliest = torch.maximum(self.first_step[slot, rows], ring.counts[0] - ring.size)
        number = latest - earliest + 1
        picked = earliest + torch.minimum((place * number).long(), number - 1).clamp(min=0)
        source = self._entry_of(picked, rows)
        truncated = (ring.gather("flags", source) & ENDED) == TRUNCATED
        following, lost = self._next_obs(ring.offset_index(source, torch.ones_like(source)), source, truncated)
        assert isinstance(following, dict)
        return following["achieved_goal"], (relabel < self.relabelled_share) & (number > 0) & ~lost

    def _entry_of(self, step: Tensor, rows: Tensor) -> Tensor:
        return step % self.ring.capacity * self.ring.num_rows + rows

    def _relabel(self, batch: ReplayBatch, goal: Tensor, chosen: Tensor) -> ReplayBatch:
        """Replace goals and rewards of the chosen transitions."""
        assert isinstance(batch.obs, dict)
        assert isinstance(batch.next_obs, dict)
        shape = batch.num_steps.shape
        goal, chosen = goal.view(*shape, *goal.shape[1:]), chosen.view(shape)
        mask = chosen.view(*shape, *[1] * (goal.dim() - 2))
        desired = torch.where(mask, goal, batch.obs["desired_goal"])
        pairs = (part.flatten(0, 1).cpu().numpy() for part in (batch.next_obs["achieved_goal"], desired))
        reward = torch.as_tensor(self.compute_reward(*pairs), dtype=torch.float32).view(shape).to(self.device)
        return batch._replace(
            obs={**batch.obs, "desired_goal": desired},
            next_obs={**batch.next_obs, "desired_goal": desired},
            reward=torch.where(chosen, reward, batch.reward[..., 0]).unsqueeze(-1),
        )

    def state_dict(self) -> dict[str, Any]:
        """Return all stored data as tensors and plain types."""
        return super().state_dict() | {"episodes": self._tables()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore from `state_dict`.

        Raises: ConfigurationError if the state holds other columns, or was saved without goals.
        """
        tables = state.get("episodes")
        if not isinstance(tables, dict):
            raise ConfigurationError(
                "The saved replay buffer does not know the episodes of its steps, which data.n_sampled_goal needs: set"
                " it to 0, or resume from `best`, which has no replay buffer."
            )
        super().load_state_dict(state)
        for name, table in self._tables().items():
            table.copy_(tables[name])

    def _tables(self) -> dict[str, Tensor]:
        names = ("episode", "first_step", "last_step", "current_episode")
        return {name: getattr(self, name) for name in names}


def batched_reward(compute_reward: ComputeReward) -> Callable[[Any, Any], Any]:
    """Return the rewards `[M]` of batches of goals, one by one where `compute_reward` takes no batches.

    The infos are empty dictionaries. Environments that take batches, as those of Gymnasium-Robotics do, are faster.
    """
    one_by_one = False

    def rewards(achieved: Any, desired: Any) -> Any:
        nonlocal one_by_one
        if not one_by_one:
            found = np.asarray(compute_reward(achieved, desired, [{}] * len(achieved)))
            if found.shape == (len(achieved),):
                return found
            one_by_one = True
        return np.array([compute_reward(*pair, {}) for pair in zip(achieved, desired, strict=True)], dtype=np.float32)

    return rewards


def check_goal_settings(spaces: SpaceSpec, env: str, n_step: int, n_sampled_goal: int, strategy: str) -> None:
    """Check that an environment has goals, and that windows have one step.

    Raises: ConfigurationError otherwise, and for invalid settings.
    """
    if n_sampled_goal < 0 or strategy not in ("future", "final", "episode"):
        raise ConfigurationError(
            f"data.n_sampled_goal is {n_sampled_goal} and data.goal_selection_strategy {strategy!r}: give a whole"
            " number from 0, and future, final or episode."
        )
    if not n_sampled_goal:
        return
    if missing := [name for name in GOAL_PARTS if name not in spaces.get("obs_parts", {})]:
        raise ConfigurationError(
            f"data.n_sampled_goal is {n_sampled_goal}, but the observations of {env} have no"
            f" {' and no '.join(missing)}: hindsight needs a goal environment, set it to 0."
        )
    if n_step != 1:
        raise ConfigurationError(
            f"data.n_step is {n_step}; with data.n_sampled_goal windows have one step: set it to 1."
        )
