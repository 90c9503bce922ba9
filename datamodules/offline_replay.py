"""OfflineReplayDataModule: a replay buffer of stored episodes; environments are stepped later, or never."""

from typing import Any

import torch

from datamodules.base import check_positive
from datamodules.buffers.n_step_replay import NStepReplayBuffer
from datamodules.buffers.ring_buffer import RESET, TERMINATED, TRUNCATED, VALID, is_frame_stack
from datamodules.buffers.stored_episodes import no_episodes, rollout_of
from datamodules.collect.collector import RolloutCollector
from datamodules.core.arguments import require_values
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.episode_files import Episodes, check_dataset, fitted_episodes
from datamodules.core.types import OffPolicyIteration, Rollout
from datamodules.replay import ReplayDataModule, ReplayDataset


class OfflineReplayDataModule(ReplayDataModule):
    """Replay buffer of stored episodes: the first `offline_steps` steps of the run only learn, the others also collect.

    In the offline part an iteration makes the same updates as one that collects, and counts as many environment steps,
    so that curves and schedules have one axis for both. Later steps are stored behind the episodes, whose oldest are
    overwritten once `capacity` is reached. Environments are always needed for their spaces and for evaluation.

    Args:
        dataset: episodes to learn from: a file `trajectories.npz` written by `predict`, or `minari:ID`, a Minari
            dataset on this machine.
        offline_steps: steps of `total_env_steps` before the environments are stepped; null: all.
        env: a Gymnasium id (`CartPole-v1`, `module:Id`) or the dotted path of an environment class.
        replay: arguments of `datamodules.ReplayDataModule`.

    Raises: ConfigurationError for a dataset that cannot be read, is larger than `capacity`, or was recorded in other
        spaces, and for a `sequence_length` above 1: episodes hold no states of a recurrent network.
    """

    def __init__(self, dataset: str, env: str, *, offline_steps: int | None = None, **replay: Any):
        require_values("data", OfflineReplayDataModule, locals())
        super().__init__(env, **replay)
        self.source, self.offline_steps = dataset, self.total_env_steps if offline_steps is None else offline_steps
        check_positive("offline_steps", self.offline_steps)
        if self.sequence_length > 1:
            raise ConfigurationError(
                f"data.sequence_length is {self.sequence_length}, but stored episodes hold no states of a recurrent"
                " network: set it to 1 and data.burn_in to 0, and use a feed-forward network."
            )
        check_dataset(dataset)
        self.episodes: Episodes | None = None

    def make_dataset(self, collector: RolloutCollector, device: torch.device) -> "OfflineReplayDataset":
        """Read the episodes, and create the dataset of the run."""
        self.episodes = fitted_episodes(self.source, self.spaces)
        return OfflineReplayDataset(self, collector, device)


class OfflineReplayDataset(ReplayDataset):
    """Dataset that learns from stored episodes first, and then as `ReplayDataset`; for arguments see there."""

    data: OfflineReplayDataModule
    example: Rollout
    stored_steps: int

    def collect(self) -> OffPolicyIteration:
        """Sample minibatches; collect and store a rollout before if the offline part is over."""
        if self.replay is None:
            self._load()
        if self.data.env_steps_taken >= self.data.offline_steps:
            return super().collect()
        assert self.replay is not None
        return self._with_minibatches(self._stored_rollout(self.replay), self.replay)

    def _load(self) -> None:
        """Create the buffer and fill it with the episodes, unless it is restored from a checkpoint."""
        data, example, restored = self.data, self.collector.collect(), self._restored_state is not None
        assert data.episodes is not None
        self.example, masks = example, dict(self.collector.state.masks)
        stored = rollout_of(data.episodes, example, data.source)
        data.episodes, self.stored_steps = None, len(stored.reward)
        if self.stored_steps + data.train_freq >= data.rows:
            raise ConfigurationError(
                f"{data.source} holds {stored.env_steps} steps, and data.capacity is {data.capacity}: raise it to at"
                f" least {stored.env_steps + (data.train_freq + 1) * stored.reward.shape[1]}."
            )
        if data.frame_stack > 1 and not is_frame_stack(stored, data.frame_stack):
            raise ConfigurationError(f"{data.source} does not hold stacked frames: set data.frame_stack to 1.")
        self.replay = self._make_buffer(example, masks, extra_final_slots=int((stored.final_step >= 0).sum()))
        if restored:
            return
        self.replay.write(stored, masks)
        self.replay.ring.commit_()
        self.replay.cut_()
        self.replay_id[1] += self.stored_steps
        self.env_steps += stored.env_steps

    def _stored_rollout(self, replay: NStepReplayBuffer) -> Rollout:
        """Return the next stored steps, from the oldest on and then again, as a rollout of one iteration."""
        ring, steps = replay.ring, self.data.train_freq
        iteration = self.data.env_steps_taken // self.data.steps_per_iteration
        first = iteration * steps % max(1, self.stored_steps - steps + 1)
        rows = torch.arange(first, first + steps + 1, device=ring.device)
        indices = rows.unsqueeze(1) * ring.num_rows + torch.arange(ring.num_rows, device=ring.device)
        obs = ring.obs(indices.flatten())
        assert not isinstance(obs, dict)
        flags = ring.gather("flags", indices[:-1]).to(self.device)
        return self.example._replace(
            obs=obs.unflatten(0, indices.shape).to(self.device),
            action=ring.gather("action", indices[:-1]).to(self.device),
            reward=ring.gather("reward", indices[:-1]).to(self.device),
            terminated=(flags & TERMINATED) > 0,
            truncated=(flags & TRUNCATED) > 0,
            valid=(flags & VALID) > 0,
            episode_start=(flags & RESET) > 0,
            final_step=torch.full_like(self.example.final_step, -1),
            episodes=no_episodes(self.example),
            env_steps=steps * ring.num_rows,
        )
