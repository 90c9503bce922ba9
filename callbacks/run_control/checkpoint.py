"""RunCheckpoint: save the best and the last checkpoint atomically, between iterations; PopulationCheckpoint."""

import operator
from copy import copy
from pathlib import Path
from typing import Any, Literal, cast

from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_warn

from callbacks.run_control.atomic_write import save_tensors, sweep_unfinished
from callbacks.run_control.checkpoint_index import write_index
from callbacks.run_control.divergence_guard import TrainingDiverged, require_stable
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.checkpoint_index import index_path, verify_index
from datamodules.core.files.paths import expand_path, require_writable
from datamodules.core.files.tensor_files import load_tensors
from datamodules.core.signals import SignalExit
from datamodules.core.types import NonFiniteError

BEST_ATTRIBUTES = (
    "best_k_models",
    "best_model_path",
    "best_model_score",
    "current_score",
    "kth_best_model_path",
    "kth_value",
)
"""Attributes of Lightning's ModelCheckpoint about the best checkpoint, which it changes before it saves."""


class AtomicCheckpointIO(TorchCheckpointIO):
    """Checkpoint IO that writes atomically, and reads tensors and plain types of local files only."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write the index, then replace the file at `path` atomically: after a crash the old file is intact."""
        path = Path(path)
        index = "global_step" in checkpoint
        save_tensors(checkpoint, path, (lambda written: write_index(checkpoint, written, path)) if index else None)

    def remove_checkpoint(self, path: str | Path) -> None:
        """Remove a checkpoint and its index."""
        super().remove_checkpoint(path)
        index_path(Path(path)).unlink(missing_ok=True)

    def load_checkpoint(
        self, path: str | Path, map_location: Any = "cpu", weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load without executing code from the file, whatever `weights_only` is.

        Raises: ConfigurationError if the path is a URL, or the file is damaged.
        """
        if "://" in str(path):
            raise ConfigurationError(f"The checkpoint `{path}` is not a local file: download it and give its path.")
        verify_index(Path(path))
        return load_tensors(path, cure="resume from another checkpoint", map_location=map_location)


class RunCheckpoint(ModelCheckpoint):
    """Save the best checkpoint by evaluation, and `last.ckpt`, in the run folder's `checkpoints/`.

    `last.ckpt` is saved after every evaluation, every `every_n_iterations`, after the last iteration, whenever a stop
    is requested, and, in a run of one process, when an exception ends the run (not if the weights diverged or a second
    Ctrl-C interrupted an iteration, and not before the first iteration of this process ended). A resumed run keeps the
    best score: only a better one becomes the best.

    Every rank's replay buffer is saved in a separate file beside `last.ckpt`, named by the identity in the checkpoint.
    The previous replay file is removed only after the new `last.ckpt` is in place, so that a kill at any time leaves a
    `last.ckpt` with its replay file. Non-finite weights are detected before anything is written.
    Lightning's ModelCheckpoint saves `last` only with a new best, warns at every save under manual optimization, and
    loses the best score if the folder changes.

    Args:
        monitor: tag of the score, logged by the evaluation.
        mode: max or min.
        save_top_k: number of best checkpoints to keep.
        every_n_iterations: iterations between saves of `last`, in addition to those at evaluations; 0 for none.

    Attributes:
        best_evaluation: values by tag of the best checkpoint's evaluation.
    """

    acts_per_iteration = False

    def __init__(
        self,
        monitor: str = "eval/return_mean",
        mode: Literal["min", "max"] = "max",
        save_top_k: int = 1,
        every_n_iterations: int = 0,
    ):
        super().__init__(
            monitor=monitor,
            mode=mode,
            save_top_k=save_top_k,
            save_last=True,
            auto_insert_metric_name=False,
            enable_version_counter=False,
        )
        self.every_n_iterations = every_n_iterations
        self.best_evaluation: dict[str, float] = {}
        self._first_step = 0
        self._replaced_best: list[str] = []

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Determine the folder, and use atomic checkpoint IO unless the user chose another.

        Removes temporary files that a killed run left in the folder, or beside the checkpoint that this run resumes
        from.

        Raises: ConfigurationError if the folder cannot be written, before the run begins rather than at its first save.
        """
        super().setup(trainer, pl_module, stage)
        self.dirpath = expand_path(str(self.dirpath))  # as TensorBoard's logger does for its folder
        if stage == "fit" and trainer.is_global_zero:
            if not trainer.fast_dev_run:  # type: ignore[attr-defined]
                require_writable(Path(self.dirpath), "folder (default_root_dir, or the logger's save_dir)")
            checkpoints = [Path(str(self.dirpath))] + ([Path(trainer.ckpt_path).parent] if trainer.ckpt_path else [])
            for folder in {folder for each in checkpoints for folder in (each, each.parent)}:
                sweep_unfinished(folder)
        write_atomically(trainer)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record the first step of this process: `on_exception` saves only after an iteration has ended."""
        super().on_train_start(trainer, pl_module)
        self._first_step = trainer.global_step

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Save the best, if this evaluation is better and complete, and the last."""
        if not keeps_checkpoints(trainer):
            return
        values = self._monitor_candidates(trainer)
        if pl_module.evaluation_episodes.is_complete:
            self._save_if_best(trainer, values, pl_module.env_steps)
        self._save_last_checkpoint(trainer, values)

    def _save_if_best(self, trainer: Trainer, values: dict[str, Any], env_steps: int) -> None:
        score = values.get(str(self.monitor))
        better = operator.gt if self.mode == "max" else operator.lt
        if score is not None and (self.best_model_score is None or better(score, self.best_model_score)):
            group = str(self.monitor).partition("/")[0] + "/"
            self.best_evaluation = {tag: float(value) for tag, value in values.items() if tag.startswith(group)}
        name = str(self.monitor).rpartition("/")[2]
        self.filename = f"best-env_steps={env_steps}-{name}={{{self.monitor}:.2f}}"
        self._save_topk_checkpoint(trainer, values)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save the last if due, if a stop was requested, and if the run is complete."""
        due = self.every_n_iterations > 0 and trainer.global_step % self.every_n_iterations == 0
        if (due or trainer.should_stop or is_last_iteration(trainer)) and keeps_checkpoints(trainer):
            self._save_last_checkpoint(trainer, self._monitor_candidates(trainer))

    def _save_topk_checkpoint(self, trainer: Any, monitor_candidates: dict[str, Any]) -> None:
        """Restore the record of the best if the new one cannot be saved."""
        require_stable(trainer)
        before = {name: copy(getattr(self, name)) for name in BEST_ATTRIBUTES}
        try:
            super()._save_topk_checkpoint(trainer, monitor_candidates)
        except BaseException:
            vars(self).update(before)
            raise

    def _remove_checkpoint(self, trainer: Any, filepath: str) -> None:
        """Remove a replaced best only after `last`, which records the best, is saved: a kill in between loses none."""
        self._replaced_best.append(filepath)

    def _save_last_checkpoint(self, trainer: Any, monitor_candidates: dict[str, Any]) -> None:
        """Save every rank's replay buffer beside `last` only: it can be a thousand times as large."""
        require_stable(trainer)
        data, folder = trainer.datamodule, Path(str(self.dirpath))
        state = data.replay_state_dict()
        if state is not None:
            save_tensors(state, data.replay_path(folder))
        super()._save_last_checkpoint(trainer, monitor_candidates)
        while self._replaced_best:
            super()._remove_checkpoint(trainer, self._replaced_best.pop())
        if state is not None:
            for path in data.superseded_replays(folder):
                path.unlink(missing_ok=True)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Do nothing: the last iteration was already saved, and a checkpoint at this point could not be resumed."""

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Do nothing: the last iteration was already saved."""

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Save the last checkpoint, if it is usable and this process can decide alone."""
        is_unusable = isinstance(exception, TrainingDiverged | NonFiniteError | KeyboardInterrupt | SignalExit)
        has_progress = trainer.global_step > self._first_step
        if is_unusable or trainer.world_size > 1 or not keeps_checkpoints(trainer) or not has_progress:
            return
        try:
            self._save_last_checkpoint(trainer, self._monitor_candidates(trainer))
        except Exception as error:  # do not hide the exception that ended the run
            rank_zero_warn(f"The last checkpoint could not be saved: {error}")

    def state_dict(self) -> dict[str, Any]:
        """Return the state with the best evaluation."""
        return super().state_dict() | {"best_evaluation": self.best_evaluation}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best if its file still exists, also if this run has another folder."""
        if Path(state_dict["best_model_path"]).is_file():
            super().load_state_dict(state_dict | {"dirpath": self.dirpath})
            self.best_evaluation = state_dict.get("best_evaluation", {})


class PopulationCheckpoint(Checkpoint):
    """Save every member's best and last checkpoint after each evaluation, in `seed_N/checkpoints/` of the run folder.

    They are checkpoints of PPO, with the weights of one member and without what a resume needs. The program uses this
    callback for a population in place of `callbacks.RunCheckpoint`.

    Args:
        settings: callback whose `monitor`, `mode` and `save_top_k` apply to each member.
    """

    acts_per_iteration = False

    def __init__(self, settings: RunCheckpoint):
        self.settings = settings
        self.members: list[MemberCheckpoint] = []

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Create the folders' callbacks."""
        folder = Path(str(trainer.log_dir or trainer.default_root_dir))
        self.members = [MemberCheckpoint(self.settings, index, seed) for index, seed in enumerate(pl_module.seeds)]
        for each in self.members:
            each.dirpath = str(folder / f"seed_{each.seed}" / "checkpoints")
            each.setup(trainer, pl_module, stage)

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Save the best of each member, if this evaluation of it is better, and the last."""
        values = pl_module.metric_logger.by_agent(self.settings._monitor_candidates(trainer))
        for each, member_values in zip(self.members, values.values(), strict=True):
            each.values = member_values
            each.on_validation_end(trainer, pl_module)


class MemberCheckpoint(RunCheckpoint):
    """RunCheckpoint of one member of a population, of its weights only.

    Args:
        settings: see `PopulationCheckpoint`.
        member: index of the member.   seed: its seed.

    Attributes:
        values: values of the last evaluation, with the member's by the tags of a single run.
    """

    def __init__(self, settings: RunCheckpoint, member: int, seed: int):
        super().__init__(str(settings.monitor), cast(Any, settings.mode), settings.save_top_k)
        self.member, self.seed, self.save_weights_only = member, seed, True
        self.values: dict[str, Any] = {}

    def _monitor_candidates(self, trainer: Trainer) -> dict[str, Any]:
        """Return `values`: Lightning's method copies the values of every member."""
        return self.values

    def _save_checkpoint(self, trainer: Trainer, filepath: str) -> None:
        """Save the member's weights."""
        module: Any = trainer.lightning_module
        module.saved_member = self.member
        super()._save_checkpoint(trainer, filepath)


def write_atomically(trainer: Trainer) -> None:
    """Use atomic checkpoint IO, unless the user chose another."""
    if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
        trainer.strategy.checkpoint_io = AtomicCheckpointIO()


def keeps_checkpoints(trainer: Any) -> bool:
    """Return whether the Trainer is fitting, outside the sanity check and `fast_dev_run`."""
    return trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking and not trainer.fast_dev_run


def is_last_iteration(trainer: Trainer) -> bool:
    """Return whether the batch that has just ended completes the run."""
    return trainer.is_last_batch or trainer.global_step == trainer.max_steps


def run_folder(checkpoint: str | Path | None, otherwise: str) -> Path:
    """Return the run folder of a checkpoint: the parent of its `checkpoints/`, else the folder `otherwise`."""
    folder = Path(checkpoint).parent if checkpoint else Path(otherwise)
    return folder.parent if checkpoint and folder.name == "checkpoints" else Path(otherwise)
