"""ReplayDataModule: off-policy data; steps are stored in a replay buffer, and minibatches are sampled from it."""

import os
from pathlib import Path
from typing import Any, Literal, cast

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from datamodules.base import EnvDataModule, check_positive
from datamodules.buffers.her_replay import (
    ComputeReward,
    GoalSelectionStrategy,
    HerReplayBuffer,
    check_goal_settings,
)
from datamodules.buffers.n_step_replay import NStepReplayBuffer
from datamodules.buffers.replay_files import read_replay, replay_name, superseded
from datamodules.buffers.replay_ratio import updates_per_iteration
from datamodules.buffers.ring_buffer import RingBuffer, is_frame_stack, num_final_slots, required_bytes
from datamodules.buffers.sequence_replay import SequenceReplayBuffer, check_sequence_settings
from datamodules.buffers.storage import check_storage_folder, choose_storage_device
from datamodules.buffers.sum_tree import SumTree
from datamodules.collect.collector import RolloutCollector
from datamodules.collect.iteration_dataset import IterationDataset
from datamodules.core.arguments import require_values
from datamodules.core.errors import ConfigurationError
from datamodules.core.phase import Phase
from datamodules.core.seeding import derive_generator, global_seed, restore_generator
from datamodules.core.types import OffPolicyIteration, ReplayBatch, Rollout
from datamodules.wrappers.apply_wrappers import make_wrapped_env


class ReplayDataModule(EnvDataModule):
    """Replay buffer; each iteration adds `train_freq` vector steps and samples minibatches.

    An iteration makes `replay_ratio * train_freq * num_envs / batch_size` updates, which must be a whole number, so
    that the ratio is exact for any number of environments. Of a sequence, every step after the burn-in is a window:
    `batch_size * (sequence_length - burn_in)` takes the place of `batch_size`.

    Args:
        env: a Gymnasium id (`CartPole-v1`, `module:Id`) or the dotted path of an environment class.
        train_freq: vector steps between two rounds of updates.
        batch_size: windows per minibatch; sequences, if `sequence_length` is more than 1.
        replay_ratio: windows learned from per environment step.
        capacity: steps stored per rank; the oldest are overwritten.
        learning_starts: environment steps before the first update, summed over ranks, without invalid autoreset steps;
            at most a tenth of the run.
        n_step: maximum number of steps whose rewards a window sums; fewer at the end of an episode.
        sequence_length: steps of a sequence, from which a recurrent network learns; 1 for a feed-forward network.
        burn_in: first steps of a sequence that only compute the network's state and are not learned from; fewer than
            `sequence_length`.
        priority_alpha: priority exponent of the sampling: 0 is uniform, 1 proportional to the error.
        priority_beta: exponent of the importance weights at the start; annealed to 1 at the end of the run.
        frame_stack: frames per observation, stacked along its first dimension, newest last, as
            `gymnasium.wrappers.FrameStackObservation` does: each frame is stored once. 1 stores observations unchanged.
        storage: device (that of the policy) | cpu | auto (the device unless it lacks memory) | disk (memory-mapped
            files, deleted at the end of the run; checkpoints hold the replay buffer as usual).
        storage_folder: folder of these files; null: the run's folder.
        n_sampled_goal: hindsight experience replay of goal environments (Andrychowicz et al. 2017, arXiv:1707.01495):
            sampled transitions with a goal achieved in their episode for each one with its own; 0 for none.
        goal_selection_strategy: achieved goal that replaces theirs: future (of a later step) | final (of the newest
            step) | episode (of any step).
        environment: other arguments of `EnvDataModule`.

    Raises: ConfigurationError for invalid values, and for environments that cannot be created.
    """

    off_policy = True
    dataset: "ReplayDataset"

    def __init__(
        self,
        env: str,
        *,
        train_freq: int = 1,
        batch_size: int = 256,
        replay_ratio: float = 32.0,
        capacity: int = 100_000,
        learning_starts: int = 1_000,
        n_step: int = 1,
        sequence_length: int = 1,
        burn_in: int = 0,
        priority_alpha: float = 0.0,
        priority_beta: float = 0.4,
        frame_stack: int = 1,
        storage: Literal["auto", "cpu", "device", "disk"] = "auto",
        storage_folder: str | None = None,
        n_sampled_goal: int = 0,
        goal_selection_strategy: GoalSelectionStrategy = "future",
        **environment: Any,
    ):
        require_values("data", ReplayDataModule, locals())
        super().__init__(env, **environment)
        self.train_freq, self.batch_size, self.replay_ratio, self.capacity = (
            train_freq,
            batch_size,
            replay_ratio,
            capacity,
        )
        self.n_step, self.sequence_length, self.burn_in = n_step, sequence_length, burn_in
        self.frame_stack = frame_stack
        self.storage, self.storage_folder = storage, storage_folder
        self.priority_alpha, self.priority_beta = priority_alpha, priority_beta
        self.n_sampled_goal, self.goal_selection_strategy = n_sampled_goal, goal_selection_strategy
        self._goal_env: Any = None
        self.learning_starts = min(learning_starts, self.total_env_steps // 10)
        self._check_values()
        if self.learning_starts < learning_starts:
            rank_zero_info(
                f"data.learning_starts is {self.learning_starts} because the run is short, not {learning_starts}."
            )
        self.updates_per_iteration = updates_per_iteration(
            self.num_envs, train_freq, batch_size, replay_ratio, sequence_length - burn_in
        )

    def _check_values(self) -> None:
        for name in ("train_freq", "batch_size", "capacity", "n_step", "sequence_length", "frame_stack"):
            check_positive(name, getattr(self, name))
        for name in ("priority_alpha", "priority_beta"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigurationError(f"data.{name} is {getattr(self, name)}; it must lie in [0, 1].")
        check_storage_folder(self.storage, self.storage_folder)
        check_sequence_settings(self.sequence_length, self.burn_in, self.n_sampled_goal)
        check_goal_settings(self.spaces, self.env, self.n_step, self.n_sampled_goal, self.goal_selection_strategy)
        stack, span = self.frame_stack, self.sequence_length + self.n_step - 1
        rows = self.train_freq + span + stack
        if self.rows < rows:
            least = rows * self.num_envs * self.spaces["num_agents"]
            raise ConfigurationError(
                f"data.capacity is {self.capacity}; {self.num_envs} environments, data.train_freq {self.train_freq} and"
                f" {'windows' if self.sequence_length == 1 else 'sequences'} of {span} steps need at least {least}."
            )
        parts = self.spaces.get("obs_parts")
        shapes = [self.spaces["obs_shape"]] if parts is None else [part["shape"] for part in parts.values()]
        if stack > 1 and not any(shape and shape[0] == stack for shape in shapes):
            raise ConfigurationError(
                f"data.frame_stack is {stack}, but {self.env} has observations of shape"
                f" {' and '.join(map(str, shapes))}: give the first number if that dimension stacks frames, else 1,"
                " which stores observations unchanged."
            )

    @property
    def rows(self) -> int:
        """Return the ring rows of the buffer, including one for the observation without a step yet."""
        return -(-self.capacity // (self.num_envs * self.spaces["num_agents"])) + 1

    def train_dataloader(self) -> "ReplayDataset":
        """Return the dataset that steps environments with the module's policy and samples from the replay buffer."""
        assert self.trainer is not None
        restored = self._restored
        collector = self.make_collector()
        self.dataset = self.make_dataset(collector, self.trainer.strategy.root_device)
        if restored is not None:
            restore_generator(self.dataset.generator, restored["replay"]["generator"])
            self.dataset.restore(self._replay_file_state(restored["replay"]), continues=bool(restored["envs"]))
        return self.dataset

    def make_dataset(self, collector: RolloutCollector, device: torch.device) -> "ReplayDataset":
        """Create the dataset of the run."""
        return ReplayDataset(self, collector, device)

    @property
    def phases(self) -> dict[str, Phase[Any]]:
        """Return the phases that collect, store, sample and update priorities."""
        replay = {name: getattr(self.dataset, name) for name in ("store", "sample", "reprioritize")}
        return super().phases | replay

    def extra_metrics(self) -> dict[str, float | Tensor]:
        """Return the `size` of the replay buffer in steps, and its largest priority if it has priorities."""
        replay = self.dataset.replay
        if replay is None:
            return super().extra_metrics()
        values = {**super().extra_metrics(), "replay/size": replay.ring.size * replay.ring.num_rows}
        return values if replay.priorities is None else values | {"replay/priority_max": replay.priorities.maximum}

    def rank_state_dict(self) -> dict[str, Any]:
        """Return the state with the generator and the identity of the replay buffer, which is saved in its own file."""
        identity = {"generator": self.dataset.generator.get_state(), "identity": self.dataset.replay_id}
        return super().rank_state_dict() | {"replay": identity}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Store this rank's state; warn that the replay buffer starts empty if the number of ranks changed."""
        super().load_state_dict(state_dict)
        if self._restored is None:
            rank_zero_info("Replay buffers belong to their ranks: with another number of ranks they start empty.")

    def replay_state_dict(self) -> dict[str, Any] | None:
        """Return the content of this rank's replay buffer, for `torch.save`; None if there is none yet."""
        state = self.dataset.content()
        counts = {"identity": self.dataset.replay_id, "env_steps": self.dataset.env_steps}
        return None if state is None else {**state, **counts}

    def replay_path(self, folder: Path) -> Path:
        """Return the path in a checkpoint folder for this rank's replay buffer in its current state."""
        assert self.trainer is not None
        return folder / replay_name(self.trainer.global_rank, self.dataset.replay_id)

    def superseded_replays(self, folder: Path) -> list[Path]:
        """List the replay files in a checkpoint folder that do not hold the state saved last."""
        assert self.trainer is not None
        return superseded(folder, self.trainer.global_rank, self.trainer.world_size, self.dataset.replay_id)

    def compute_reward(self) -> ComputeReward:
        """Return `compute_reward` of one more instance of the environment, in this process.

        Raises: ConfigurationError if it has none.
        """
        if self._goal_env is None:
            spec = self._resolved.spec
            self._goal_env = None if spec is None else make_wrapped_env(spec, self.train_wrappers, self.env_kwargs)
        try:
            return cast(ComputeReward, self._goal_env.get_wrapper_attr("compute_reward"))
        except AttributeError:
            raise ConfigurationError(
                f"data.n_sampled_goal is {self.n_sampled_goal}, but {self.env} has no compute_reward(achieved_goal,"
                " desired_goal, info): write it, or set data.n_sampled_goal to 0."
            ) from None

    def teardown(self, stage: str) -> None:
        """Close the environments."""
        super().teardown(stage)
        if self._goal_env is not None:
            self._goal_env.close()
            self._goal_env = None

    def disk_folder(self) -> Path | None:
        """Return the folder of the replay buffer's files; None if it is in memory."""
        if self.storage != "disk":
            return None
        assert self.trainer is not None
        return Path(self.storage_folder or self.trainer.log_dir or self.trainer.default_root_dir)

    def _replay_file_state(self, saved: dict[str, Any]) -> dict[str, Any] | None:
        """Return the content that belongs to a checkpoint if every rank has its file; else start empty on all ranks.

        Raises: ConfigurationError on every rank if the file of one is damaged.
        """
        assert self.trainer is not None
        rank, on_all_ranks = self.trainer.global_rank, self.trainer.strategy.reduce_boolean_decision
        path = Path(str(self.trainer.ckpt_path)).parent / replay_name(rank, saved["identity"])
        state, problem = None, "The replay buffer of another rank is damaged: see its message."
        try:
            state, is_intact = read_replay(path, saved["identity"]), True
        except ConfigurationError as error:
            problem, is_intact = str(error), False
        if not on_all_ranks(is_intact):
            raise ConfigurationError(problem)
        if on_all_ranks(state is not None):
            return state
        rank_zero_info("The checkpoint has no replay buffer, which only `last` has: it is filled before learning.")
        return None


class ReplayDataset(IterationDataset):
    """Dataset that steps environments, stores the steps in its replay buffer, and samples minibatches.

    Args:
        data: data module with the settings.
        collector: collector that steps the environments.
        device: device of the minibatches.

    Attributes:
        replay: the replay buffer; None before the first iteration, which determines the shapes.
        store, sample, reprioritize: phases that store a rollout, sample minibatches and update priorities.
        replay_id: `[number, steps]`: random number of this process, and vector steps written to the buffer; a
            checkpoint and a file that agree in both belong together.
        env_steps: valid steps written to this rank's buffer.
    """

    def __init__(self, data: ReplayDataModule, collector: RolloutCollector, device: torch.device):
        super().__init__(data.iterations, data.trainer)
        self.data, self.collector, self.device = data, collector, device
        self.replay: NStepReplayBuffer | None = None
        self.replay_id, self.env_steps = [int.from_bytes(os.urandom(7), "big"), 0], 0
        self.store: Phase[None] = Phase(self._store, device, name="store")
        self.sample: Phase[ReplayBatch] = Phase(self._sample, device, name="sample")
        self.reprioritize: Phase[None] = Phase(
            self._reprioritize, device, name="reprioritize", mutated_tensors=self._priority_tensors
        )
        rank = data.trainer.global_rank if data.trainer is not None else 0
        self.generator = derive_generator(global_seed(), rank, "replay", device)
        self._restored_state: dict[str, Any] | None = None
        self._are_episodes_cut = self._has_started = False

    def restore(self, state: dict[str, Any] | None, continues: bool) -> None:
        """Restore a saved content, if there is one, as soon as the shapes are known.

        Args:
            continues: whether the environments continue their episodes, or have been reset.
        """
        self._restored_state, self._are_episodes_cut = state, not continues
        if state is not None:
            self.replay_id[1], self.env_steps = state["identity"][1], state["env_steps"]

    def content(self) -> dict[str, Any] | None:
        """Return the content of the buffer, or the content to restore; None if there is neither."""
        return self._restored_state if self.replay is None else self.replay.state_dict()

    def collect(self) -> OffPolicyIteration:
        """Collect and store a rollout, and sample minibatches."""
        data, rollout = self.data, self.collector.collect()
        masks = dict(self.collector.state.masks)
        if data.frame_stack > 1 and not is_frame_stack(rollout, data.frame_stack):
            raise ConfigurationError(
                f"data.frame_stack is {data.frame_stack}, but {data.env}'s observations are not stacks that can be"
                " rebuilt from single frames (shifted by one frame per step, the first one repeated): set it to 1,"
                " which stores observations unchanged."
            )
        if self.replay is None:
            self.replay = self._make_buffer(rollout, masks)
        replay = self.replay
        self.store(rollout, masks)
        replay.commit_()
        self.replay_id[1] += data.train_freq
        self.env_steps += rollout.env_steps
        return self._with_minibatches(rollout, replay)

    def _with_minibatches(self, rollout: Rollout, replay: NStepReplayBuffer) -> OffPolicyIteration:
        """Return the iteration with the minibatches of its updates, if learning has started."""
        data = self.data
        if not self._learning_starts() or min(self.replay_id[1], data.rows - 1) <= replay.min_size:
            return OffPolicyIteration(rollout, None, self)
        if replay.priorities is not None and data.trainer is not None:
            replay.beta.fill_(data.priority_beta + (1 - data.priority_beta) * data.progress)
        noise = replay.noise(data.updates_per_iteration, data.batch_size, self.generator)
        return OffPolicyIteration(rollout, self.sample(noise), self)

    def _learning_starts(self) -> bool:
        """Return whether all ranks together have done `data.learning_starts` environment steps; equal on every rank."""
        data, steps = self.data, self.env_steps
        if not self._has_started:
            if data.trainer is not None and data.world_size > 1:
                rank_steps = torch.tensor(steps, device=self.device)
                steps = int(data.trainer.strategy.reduce(rank_steps, reduce_op="sum"))
            self._has_started = steps >= data.learning_starts
        return self._has_started

    def update_priorities(self, indices: Tensor, error: Tensor) -> None:
        """Set the priorities of the windows at `indices` from their errors; no effect under uniform sampling."""
        if self.data.priority_alpha:
            self.reprioritize(indices, error)

    def _reprioritize(self, indices: Tensor, error: Tensor) -> None:
        assert self.replay is not None
        self.replay.update_priorities(indices, error)

    def _priority_tensors(self) -> list[Tensor]:
        assert self.replay is not None
        assert self.replay.priorities is not None
        return [*self.replay.priorities.levels, self.replay.priorities.maximum]

    def _store(self, rollout: Rollout, masks: dict[str, Tensor]) -> None:
        assert self.replay is not None
        self.replay.write(rollout, masks)

    def _sample(self, noise: Tensor) -> ReplayBatch:
        assert self.replay is not None
        return self.replay.sample(noise)

    def _make_buffer(self, rollout: Rollout, masks: dict[str, Tensor], extra_final_slots: int = 0) -> NStepReplayBuffer:
        """Create the buffer with the shapes of the first rollout, and restore the saved content.

        Args:
            extra_final_slots: true last observations to store beside those that the environments may return.
        """
        data, stack = self.data, self.data.frame_stack
        num_slots = num_final_slots(data.rows, self.collector.rows, self.collector.envs.min_truncation_step)
        num_slots += extra_final_slots
        needed = required_bytes(rollout, masks, data.rows, finals=num_slots, frame_stack=stack)
        folder = data.disk_folder()
        device = choose_storage_device(data.storage, self.device, needed, data.capacity, folder)
        self.store.capturable = self.sample.capturable = self.reprioritize.capturable = device == self.device
        memory: dict[str, Any] = {"device": device, "folder": folder}
        memory["pinned"] = folder is None and (device.type, self.device.type) == ("cpu", "cuda")
        ring = RingBuffer(rollout, masks, data.rows, num_final_slots=num_slots, frame_stack=stack, **memory)
        priorities = SumTree(data.rows * ring.num_rows, data.priority_alpha, device) if data.priority_alpha else None
        settings: dict[str, Any] = {"has_invalid_steps": rollout.has_invalid_steps, "priorities": priorities}
        if data.n_sampled_goal:
            settings |= {"n_sampled_goal": data.n_sampled_goal, "compute_reward": data.compute_reward()}
            settings["goal_selection_strategy"] = data.goal_selection_strategy
            self.sample.capturable = False  # rewards are computed on the host
            replay: NStepReplayBuffer = HerReplayBuffer(ring, self.device, **settings)
        elif data.sequence_length > 1:
            settings |= {"sequence_length": data.sequence_length, "burn_in": data.burn_in}
            replay = SequenceReplayBuffer(ring, data.n_step, self.device, **settings)
        else:
            replay = NStepReplayBuffer(ring, data.n_step, self.device, **settings)
        if self._restored_state is not None:
            replay.load_state_dict(self._restored_state)
            if self._are_episodes_cut:
                replay.cut_()
        self._restored_state = None
        return replay
