"""Off-policy data: steps go into a replay, and what is learned from is drawn from it."""

import os
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from datamodules.base import Backend, EnvironmentData, OnEnvError, require_positive
from datamodules.buffers.n_step_replay import WindowReplay
from datamodules.buffers.replay_files import read_replay, replay_name, superseded
from datamodules.buffers.ring_buffer import Ring, are_stacks, final_slots, ring_bytes
from datamodules.buffers.storage import require_use, storage_device
from datamodules.buffers.sum_tree import Priorities
from datamodules.collect.collector import Collector
from datamodules.collect.iteration_dataset import IterationDataset
from datamodules.core.errors import UsageError
from datamodules.core.phase import Joint
from datamodules.core.required_values import require_values
from datamodules.core.seeding import restore_generator, run_seed, stream_generator
from datamodules.core.types import Experience, Rollout, Transitions


class ReplayData(EnvironmentData):
    """A replay that every iteration adds `horizon` vector steps to and draws minibatches from.

    An iteration makes `replay_ratio * horizon * num_envs / batch_size` updates, which must be a whole number: so the
    ratio is kept exactly, whatever the number of environments.

    Args:
        env: a Gymnasium id (`CartPole-v1`, `module:Id`) or the dotted path of an environment class.
        env_kwargs: keyword arguments of the environment.
        backend: auto | device (on-device tensors) | sync | async (a process each) | vector (the id's own entry point)
            | pool (many environments in each of a few processes) | envpool (EnvPool's environments, in threads of C++).
        num_envs: environments on each rank.
        horizon: vector steps between two rounds of updates.
        batch_size: windows in a minibatch.
        replay_ratio: windows learned from for every environment step.
        capacity: steps kept, on each rank; the oldest are overwritten.
        learning_starts: environment steps before the first update, all ranks together, without the invalid ones of
            autoresets; at most a tenth of the run.
        n_step: steps a window sums rewards over, at most; shorter where its episode ends.
        priority_alpha: how much errors matter when windows are drawn: 0 is uniform, 1 in proportion.
        priority_beta: how much of the bias of that is undone at the start; everything at the end of the run.
        frame_stack: frames in an observation that is a stack of them along its first dimension, newest last, as
            `gymnasium.wrappers.FrameStackObservation` makes: each is stored once. 1 stores observations as they come.
        storage: device (where the policy is) | cpu | auto (the device unless it lacks the memory) | disk (files that
            are mapped into memory and gone when the run ends; checkpoints hold the replay as ever).
        storage_folder: where these files lie; null: in the run's folder.
        total_env_steps: the length of the run in environment steps, all ranks together, rounded up to whole iterations.
        eval_episodes: episodes of an evaluation, all ranks together.
        eval_greedy: evaluate the policy's mode (True) or sample from it.
        eval_env_kwargs: changes to `env_kwargs` for evaluation only.
        eval_max_steps: an evaluation episode this long is truncated there, with a warning; the row plays its next one.
        iterations_per_batch: iterations that Lightning runs as one batch; more than 1 saves its overhead (0.3 ms a
            batch) where iterations take a few ms, and is refused beside callbacks that act on every batch.
        env_timeout: seconds that an environment in a process (async, pool) may take for its start, a reset or a step; a
            longer one is named with its action and ends the run. null: 300 there; the other backends have none.
        on_env_error: what follows where an environment in a process (async, pool) raises, dies or exceeds
            `env_timeout`: stop ends the run, restart makes it anew and drops its episode, up to max(3, num_envs) times
            within 1,000 env steps.

    Raises: UsageError for values that cannot be, and for environments that cannot be made.
    """

    off_policy = True
    dataset: "ReplayDataset"

    def __init__(
        self,
        env: str,
        env_kwargs: dict[str, Any] | None = None,
        backend: Backend = "auto",
        num_envs: int = 8,
        horizon: int = 1,
        batch_size: int = 256,
        replay_ratio: float = 32.0,
        capacity: int = 100_000,
        learning_starts: int = 1_000,
        n_step: int = 1,
        priority_alpha: float = 0.0,
        priority_beta: float = 0.4,
        frame_stack: int = 1,
        storage: Literal["auto", "cpu", "device", "disk"] = "auto",
        storage_folder: str | None = None,
        total_env_steps: int = 100_000,
        eval_episodes: int = 32,
        eval_greedy: bool = True,
        eval_env_kwargs: dict[str, Any] | None = None,
        eval_max_steps: int = 20_000,
        iterations_per_batch: int = 1,
        env_timeout: float | None = None,
        on_env_error: OnEnvError = "stop",
    ):
        require_values("data", ReplayData, locals())
        rest = (eval_episodes, eval_greedy, eval_env_kwargs, eval_max_steps, iterations_per_batch, env_timeout)
        super().__init__(env, env_kwargs, backend, num_envs, total_env_steps, *rest, on_env_error)
        self.horizon, self.batch_size, self.replay_ratio, self.capacity = horizon, batch_size, replay_ratio, capacity
        self.n_step, self.frame_stack = n_step, frame_stack
        self.storage, self.storage_folder = storage, storage_folder
        self.priority_alpha, self.priority_beta = priority_alpha, priority_beta
        self.learning_starts = min(learning_starts, total_env_steps // 10)
        self._check_values()
        if self.learning_starts < learning_starts:
            rank_zero_info(f"data.learning_starts is {self.learning_starts} in so short a run, not {learning_starts}.")
        self.updates_per_iteration = updates_per_iteration(num_envs, horizon, batch_size, replay_ratio)
        self.save_hyperparameters()

    def _check_values(self) -> None:
        for name in ("horizon", "batch_size", "capacity", "n_step", "frame_stack"):
            require_positive(name, getattr(self, name))
        for name in ("priority_alpha", "priority_beta"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"data.{name} is {getattr(self, name)}; it must lie in [0, 1].")
        require_use(self.storage, self.storage_folder)
        stack, rows = self.frame_stack, self.horizon + self.n_step + self.frame_stack
        if self.rows < rows:
            least = rows * self.num_envs * self.spaces["agents"]
            raise UsageError(
                f"data.capacity is {self.capacity}; {self.num_envs} environments, a horizon of {self.horizon} and"
                f" windows of {self.n_step} steps need at least {least}."
            )
        if stack > 1 and self.spaces["obs_shape"][0] != stack:
            raise UsageError(
                f"data.frame_stack is {stack}, but {self.env} shows {self.spaces['obs_shape']}: give the first number"
                " if that dimension stacks frames, else 1, which stores observations whole."
            )

    @property
    def rows(self) -> int:
        """Vector steps that the replay's storage has room for; one of them waits for its step."""
        return -(-self.capacity // (self.num_envs * self.spaces["agents"])) + 1

    @property
    def steps_per_iteration(self) -> int:
        """Environment steps one iteration adds, all ranks together."""
        return self.horizon * self.num_envs * self.world_size

    def train_dataloader(self) -> "ReplayDataset":
        """The loop: environments stepped with the module's own policy, and the replay behind them."""
        assert self.trainer is not None
        restored = self._restored
        collector = self.make_collector(self.horizon)
        self.dataset = ReplayDataset(self, collector, self.trainer.strategy.root_device)
        if restored is not None:
            restore_generator(self.dataset.generator, restored["replay"]["generator"])
            self.dataset.restore(self._sidecar(restored["replay"]), continues=bool(restored["envs"]))
        return self.dataset

    @property
    def joints(self) -> dict[str, Joint[Any]]:
        """Collecting, storing what was collected, sampling, and taking errors back."""
        replay = {name: getattr(self.dataset, name) for name in ("store", "sample", "reprioritize")}
        return super().joints | replay

    def measured(self) -> dict[str, float | Tensor]:
        """The replay's `size` in steps, and its largest priority weight where it has priorities."""
        replay = self.dataset.replay
        if replay is None:
            return super().measured()
        values = {**super().measured(), "replay/size": replay.ring.size * replay.ring.width}
        return values if replay.priorities is None else values | {"replay/priority_max": replay.priorities.maximum}

    def rank_state(self) -> dict[str, Any]:
        """Adds the replay's generator, and which replay it was; its content lies in a file of its own."""
        identity = {"generator": self.dataset.generator.get_state(), "identity": self.dataset.identity}
        return super().rank_state() | {"replay": identity}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep this rank's part; with another number of ranks say that the replay fills anew."""
        super().load_state_dict(state_dict)
        if self._restored is None:
            rank_zero_info("Every rank's replay belongs to its rank: with another number of them it fills anew.")

    def replay_state(self) -> dict[str, Any] | None:
        """Return everything this rank's replay holds, for `torch.save`; None before there is one."""
        state = self.dataset.content()
        counts = {"identity": self.dataset.identity, "env_steps": self.dataset.env_steps}
        return None if state is None else {**state, **counts}

    def replay_path(self, folder: Path) -> Path:
        """Return the file in a folder of checkpoints that this rank's replay, as it is, goes into."""
        assert self.trainer is not None
        return folder / replay_name(self.trainer.global_rank, self.dataset.identity)

    def superseded_replays(self, folder: Path) -> list[Path]:
        """List the files in a folder of checkpoints whose replay is not the one that was saved last."""
        assert self.trainer is not None
        return superseded(folder, self.trainer.global_rank, self.trainer.world_size, self.dataset.identity)

    def disk_folder(self) -> Path | None:
        """Where the replay's files lie; None if it lies in memory."""
        if self.storage != "disk":
            return None
        assert self.trainer is not None
        return Path(self.storage_folder or self.trainer.log_dir or self.trainer.default_root_dir)

    def _sidecar(self, saved: dict[str, Any]) -> dict[str, Any] | None:
        """Return the content that belongs to a checkpoint if every rank has its file; else all of them begin anew.

        Raises: UsageError on every rank if the file of one is damaged.
        """
        assert self.trainer is not None
        rank, agreed = self.trainer.global_rank, self.trainer.strategy.reduce_boolean_decision
        path = Path(str(self.trainer.ckpt_path)).parent / replay_name(rank, saved["identity"])
        state, problem = None, "The replay of another rank is damaged: see its message."
        try:
            state, sound = read_replay(path, saved["identity"]), True
        except UsageError as error:
            problem, sound = str(error), False
        if not agreed(sound):
            raise UsageError(problem)
        if agreed(state is not None):
            return state
        rank_zero_info("The checkpoint comes without its replay, which only `last` has: it fills anew before learning.")
        return None


class ReplayDataset(IterationDataset):
    """Steps environments, stores what happened, and draws what to learn from; it owns the replay.

    Args:
        data: the settings.
        collector: steps the environments.
        device: where minibatches go.

    Attributes:
        replay: what is stored; None before the first iteration, which shows the shapes.
        store, sample, reprioritize: the joints that store a rollout, draw minibatches and take their errors back.
        identity: `[number, steps]`: drawn at random when this process began, and vector steps that went into the
            replay; a checkpoint and a file that agree in both belong together.
        env_steps: valid steps that went into this rank's replay.
    """

    def __init__(self, data: ReplayData, collector: Collector, device: torch.device):
        super().__init__(data.iterations, data.trainer)
        self.data, self.collector, self.device = data, collector, device
        self.replay: WindowReplay | None = None
        self.identity, self.env_steps = [int.from_bytes(os.urandom(7), "big"), 0], 0
        self.store: Joint[None] = Joint(self._store, device, name="store")
        self.sample: Joint[Transitions] = Joint(self._sample, device, name="sample")
        self.reprioritize: Joint[None] = Joint(self._reprioritize, device, name="reprioritize", owned=self._weights)
        rank = data.trainer.global_rank if data.trainer is not None else 0
        self.generator = stream_generator(run_seed(), rank, "replay", device)
        self._saved: dict[str, Any] | None = None
        self._cut = self._started = False

    def restore(self, state: dict[str, Any] | None, continues: bool) -> None:
        """Continue with a saved content, if there is one, once the shapes are known.

        Args:
            continues: whether the environments go on where they were, or have begun new episodes.
        """
        self._saved, self._cut = state, not continues
        if state is not None:
            self.identity[1], self.env_steps = state["identity"][1], state["env_steps"]

    def content(self) -> dict[str, Any] | None:
        """Return what the replay holds, or what it will continue with; None before there is either."""
        return self._saved if self.replay is None else self.replay.state_dict()

    def collect(self) -> Experience:
        """Step, store, and draw what to learn from."""
        data, rollout = self.data, self.collector.collect()
        masks = dict(self.collector.live.masks)
        if data.frame_stack > 1 and not are_stacks(rollout):
            raise UsageError(
                f"data.frame_stack is {data.frame_stack}, but {data.env}'s observations are no stacks that can be"
                " rebuilt from single frames (moved by one frame a step, an episode's first repeated): set it to 1,"
                " which stores observations whole."
            )
        if self.replay is None:
            self.replay = self._make(rollout, masks)
        replay = self.replay
        self.store(rollout, masks)
        replay.ring.advance_()
        self.identity[1] += data.horizon
        self.env_steps += rollout.env_steps
        if not self._learning_starts() or min(self.identity[1], data.rows - 1) <= replay.margin:
            return Experience(rollout, None, self)
        if replay.priorities is not None and data.trainer is not None:
            replay.beta.fill_(data.priority_beta + (1 - data.priority_beta) * data.progress)
        noise = replay.noise(data.updates_per_iteration, data.batch_size, self.generator)
        return Experience(rollout, self.sample(noise), self)

    def _learning_starts(self) -> bool:
        """Tell whether all ranks together have taken `data.learning_starts` environment steps; the same on each."""
        data, steps = self.data, self.env_steps
        if not self._started:
            if data.trainer is not None and data.world_size > 1:
                own = torch.tensor(steps, device=self.device)
                steps = int(data.trainer.strategy.reduce(own, reduce_op="sum"))
            self._started = steps >= data.learning_starts * data.spaces["agents"]
        return self._started

    def reprioritize_(self, entry: Tensor, error: Tensor) -> None:
        """Remember how wrong the windows at `Transitions.entry` were; nothing where drawing is uniform."""
        if self.data.priority_alpha:
            self.reprioritize(entry, error)

    def _reprioritize(self, entry: Tensor, error: Tensor) -> None:
        assert self.replay is not None
        self.replay.reprioritize_(entry, error)

    def _weights(self) -> list[Tensor]:
        assert self.replay is not None
        assert self.replay.priorities is not None
        return [*self.replay.priorities.levels, self.replay.priorities.maximum]

    def _store(self, rollout: Rollout, masks: dict[str, Tensor]) -> None:
        assert self.replay is not None
        self.replay.write(rollout, masks)

    def _sample(self, noise: Tensor) -> Transitions:
        assert self.replay is not None
        return self.replay.sample(noise)

    def _make(self, rollout: Rollout, masks: dict[str, Tensor]) -> WindowReplay:
        """Storage in the shapes of the first rollout, and the saved content in it."""
        data, stack = self.data, self.data.frame_stack
        finals = final_slots(data.rows, self.collector.rows, self.collector.envs.shortest_truncation)
        needed = ring_bytes(rollout, masks, data.rows, finals=finals, frame_stack=stack)
        folder = data.disk_folder()
        device = storage_device(data.storage, self.device, needed, data.capacity, folder)
        self.store.capturable = self.sample.capturable = self.reprioritize.capturable = device == self.device
        place: dict[str, Any] = {"device": device, "folder": folder}
        place["pinned"] = folder is None and (device.type, self.device.type) == ("cpu", "cuda")
        ring = Ring(rollout, masks, data.rows, finals=finals, frame_stack=stack, **place)
        priorities = Priorities(data.rows * ring.width, data.priority_alpha, device) if data.priority_alpha else None
        replay = WindowReplay(ring, data.n_step, self.device, phantoms=rollout.phantoms, priorities=priorities)
        if self._saved is not None:
            replay.load_state_dict(self._saved)
            if self._cut:
                replay.cut_()
        self._saved = None
        return replay


def updates_per_iteration(num_envs: int, horizon: int, batch_size: int, replay_ratio: float) -> int:
    """Updates that keep the ratio of windows learned from to environment steps exactly.

    Raises: UsageError if that is no whole number, with what would be.
    """
    if replay_ratio <= 0:
        raise UsageError(f"data.replay_ratio is {replay_ratio}; it must be positive.")
    step = Fraction(str(replay_ratio)) * num_envs / batch_size
    updates = step * horizon
    if updates.denominator != 1:
        least = step.denominator
        near = sorted({max(1, horizon // least) * least, -(-horizon // least) * least})
        raise UsageError(
            f"data.replay_ratio {replay_ratio:g} with {num_envs} environments and a horizon of {horizon} makes"
            f" {float(updates * batch_size):g} samples an iteration, no multiple of data.batch_size {batch_size}:"
            f" the nearest horizons that work are {near}."
        )
    return int(updates)
