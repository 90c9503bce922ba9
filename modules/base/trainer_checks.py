"""Refuse, before a fit, what the user's Trainer, callbacks or hooks cannot do with iterations as batches."""

from collections.abc import Iterator
from typing import Any

from lightning.pytorch import Callback, LightningDataModule, LightningModule
from lightning.pytorch.callbacks import (
    BackboneFinetuning,
    BaseFinetuning,
    BasePredictionWriter,
    BatchSizeFinder,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ModelCheckpoint,
    ModelPruning,
    OnExceptionCheckpoint,
    ProgressBar,
    RichProgressBar,
    SpikeDetection,
    StochasticWeightAveraging,
    ThroughputMonitor,
    Timer,
    TQDMProgressBar,
    WeightAveraging,
)

from datamodules.core.errors import UsageError

PER_BATCH = ("on_train_batch_start", "on_train_batch_end")
"""Hooks of callbacks and modules that Lightning calls once a batch."""

TRANSFERS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
"""Hooks of modules and data that Lightning calls once a batch, too."""

INDIFFERENT: tuple[type, ...] = (ModelCheckpoint, RichProgressBar, TQDMProgressBar, Timer)
"""Lightning's own that act on batches with the same effect however many iterations a batch holds."""

UNUSABLE: dict[type, str] = {
    BackboneFinetuning: "unfreezes layers at later epochs, and a run is one epoch: freeze layers in a network of yours",
    BaseFinetuning: "is a base class that does nothing by itself: name a subclass",
    BasePredictionWriter: "is a base class that writes nothing by itself: `predict` writes trajectories without it",
    BatchSizeFinder: "tries batches of a loader, but experience is made by the run: set data.num_envs, data.batch_size",
    GradientAccumulationScheduler: "does not act where algorithms step by themselves: use fewer model.minibatches",
    LearningRateFinder: "needs a loss that Lightning steps by itself: try rates with the verb `compare`",
    ModelPruning: "prunes at the ends of epochs, and a run is one epoch: use torch.nn.utils.prune after it",
    OnExceptionCheckpoint: "resumes from its file without being asked: callbacks.run_control.checkpoint.Checkpoint saves then, too",
    ProgressBar: "is a base class that shows nothing by itself: use callbacks.performance.progress_bar.Progress",
    SpikeDetection: "looks for a loss that Lightning steps by itself: use callbacks.run_control.divergence_guard.Stability",
    StochasticWeightAveraging: "averages at the ends of epochs, and a run is one epoch: use EMAWeightAveraging, which"
    " averages after every iteration",
    ThroughputMonitor: "counts batches of a loader: use callbacks.performance.throughput.Throughput, which counts env steps",
}
"""Lightning's own callbacks that cannot act on these runs: why, and what to use instead."""


def check_callbacks(callbacks: list[Callback]) -> None:
    """Raises: UsageError for a callback that cannot act; subclasses of the user's are theirs to answer for."""
    for callback in callbacks:
        if type(callback) in UNUSABLE:
            raise UsageError(f"The callback {type(callback).__name__} {UNUSABLE[type(callback)]}.")


def check_averages(callbacks: list[Callback], module: LightningModule) -> None:
    """Raises: UsageError for an average over buffers of a module in which some are switches or whole numbers."""
    exact = [name for name, buffer in module.named_buffers() if not buffer.is_floating_point()]
    for callback in callbacks:
        if exact and isinstance(callback, WeightAveraging) and callback._use_buffers:
            raise UsageError(
                f"The callback {type(callback).__name__} averages buffers, too, but {exact[0]} of"
                f" {type(module).__name__} has no average: set its use_buffers to false."
            )


def check_trainer(trainer: Any, module: LightningModule, data: Any) -> None:
    """Check the Trainer before a fit; set `check_val_every_n_epoch` 1 to None, which means the same in one epoch.

    Raises: UsageError for callbacks that cannot act, more than one epoch, and hooks that act once a batch where a batch
        holds several iterations.
    """
    check_callbacks(trainer.callbacks)
    check_averages(trainer.callbacks, module)
    if trainer.max_epochs != 1:
        raise UsageError(
            f"trainer.max_epochs is {trainer.max_epochs}, but a run is one epoch of data.total_env_steps: set it to 1"
            " (max_steps and max_time can still end it earlier)."
        )
    if trainer.check_val_every_n_epoch not in (None, 1):
        raise UsageError(
            f"trainer.check_val_every_n_epoch is {trainer.check_val_every_n_epoch}, but a run is one epoch: set it to"
            " null and trainer.val_check_interval to a number of iterations."
        )
    if isinstance(getattr(trainer, "val_check_interval", None), int):  # there is none if it is a time
        trainer.check_val_every_n_epoch = None
    if getattr(data, "iterations_per_batch", 1) > 1:
        require_indifference(trainer.callbacks, module, data)


def require_indifference(callbacks: list[Callback], module: LightningModule, data: LightningDataModule) -> None:
    """Raises: UsageError if a callback, the module or the data acts once a batch without saying that it may."""
    hooks = [
        *((callback, Callback, PER_BATCH) for callback in callbacks),
        (module, LightningModule, PER_BATCH + TRANSFERS),
        (data, LightningDataModule, TRANSFERS),
    ]
    for owner, base, names in hooks:
        for name in acting_hooks(type(owner), base, names):
            raise UsageError(
                f"data.iterations_per_batch is {getattr(data, 'iterations_per_batch', 1)}, but"
                f" {type(owner).__name__}.{name} acts on every batch: set data.iterations_per_batch to 1, or if it may"
                f" act once for several iterations, give {type(owner).__name__} the attribute"
                " `acts_per_iteration = False`."
            )


def acting_hooks(kind: type, base: type, names: tuple[str, ...]) -> Iterator[str]:
    """Yield the hooks that a class overrides without a declaration in the class that overrides them, or below it."""
    for name in names:
        mro = kind.__mro__
        definer = next(each for each in mro if name in vars(each))
        below = mro[: mro.index(definer) + 1]
        declared = any(vars(each).get("acts_per_iteration") is False or each in INDIFFERENT for each in below)
        if definer not in base.__mro__ and not declared:
            yield name
