"""Checks of the Trainer, callbacks and hooks before a fit, whose batches hold several iterations."""

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

from datamodules.core.errors import ConfigurationError

PER_BATCH = ("on_train_batch_start", "on_train_batch_end")
"""Hooks of callbacks and modules that Lightning calls once a batch."""

TRANSFERS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
"""Hooks of modules and data that Lightning also calls once a batch."""

INDIFFERENT: tuple[type, ...] = (ModelCheckpoint, RichProgressBar, TQDMProgressBar, Timer)
"""Lightning's callbacks whose effect does not depend on the number of iterations in a batch."""

UNUSABLE: dict[type, str] = {
    BackboneFinetuning: "unfreezes layers at later epochs, and a run is one epoch: freeze layers in the network's code",
    BaseFinetuning: "is a base class that does nothing by itself: name a subclass",
    BasePredictionWriter: "is a base class that writes nothing by itself: `predict` writes trajectories without it",
    BatchSizeFinder: "tries batches of a loader, but the run makes its own data: set data.num_envs, data.batch_size",
    GradientAccumulationScheduler: "does not act on manual optimization: use larger minibatches, that is fewer"
    " model.num_minibatches, or a larger data.batch_size where minibatches come from a replay buffer",
    LearningRateFinder: "needs a loss that Lightning steps by itself: try rates with the verb `compare`",
    ModelPruning: "prunes at the ends of epochs, and a run is one epoch: use torch.nn.utils.prune after it",
    OnExceptionCheckpoint: "resumes from its file automatically: callbacks.RunCheckpoint also saves then",
    ProgressBar: "is a base class that shows nothing: use callbacks.TrainingProgress",
    SpikeDetection: "looks for a loss that Lightning steps by itself: use callbacks.DivergenceGuard",
    StochasticWeightAveraging: "averages at the ends of epochs, and a run is one epoch: use EMAWeightAveraging, which"
    " averages after every iteration",
    ThroughputMonitor: "counts batches of a loader: use callbacks.Throughput, which counts env steps",
}
"""Lightning's callbacks without effect in these runs: why, and what to use instead."""


def check_callbacks(callbacks: list[Callback]) -> None:
    """Check that no callback is in `UNUSABLE`; subclasses of these are accepted.

    Raises: ConfigurationError otherwise.
    """
    for callback in callbacks:
        if type(callback) in UNUSABLE:
            raise ConfigurationError(f"The callback {type(callback).__name__} {UNUSABLE[type(callback)]}.")


def check_averages(callbacks: list[Callback], module: LightningModule) -> None:
    """Check that no callback averages integer or boolean buffers.

    Raises: ConfigurationError otherwise.
    """
    exact = [name for name, buffer in module.named_buffers() if not buffer.is_floating_point()]
    for callback in callbacks:
        if exact and isinstance(callback, WeightAveraging) and callback._use_buffers:
            raise ConfigurationError(
                f"The callback {type(callback).__name__} also averages buffers, but {exact[0]} of"
                f" {type(module).__name__} cannot be averaged: set its use_buffers to false."
            )


def check_trainer(trainer: Any, module: LightningModule, data: Any) -> None:
    """Check the Trainer before a fit; set `check_val_every_n_epoch` 1 to None, which is equivalent in one epoch.

    Raises: ConfigurationError for unusable callbacks, more than one epoch, and hooks that act once a batch where a
        batch holds several iterations.
    """
    check_callbacks(trainer.callbacks)
    check_averages(trainer.callbacks, module)
    if trainer.max_epochs != 1:
        raise ConfigurationError(
            f"trainer.max_epochs is {trainer.max_epochs}, but a run is one epoch of data.total_env_steps: set it to 1"
            " (max_steps and max_time can still end it earlier)."
        )
    if trainer.check_val_every_n_epoch not in (None, 1):
        raise ConfigurationError(
            f"trainer.check_val_every_n_epoch is {trainer.check_val_every_n_epoch}, but a run is one epoch: set it to"
            " null and trainer.val_check_interval to a number of iterations."
        )
    if isinstance(getattr(trainer, "val_check_interval", None), int):  # absent if the interval is a time
        trainer.check_val_every_n_epoch = None
    if getattr(data, "iterations_per_batch", 1) > 1:
        require_indifference(trainer.callbacks, module, data)


def require_indifference(callbacks: list[Callback], module: LightningModule, data: LightningDataModule) -> None:
    """Check that callbacks, module and data have no hook that acts once a batch, unless declared as harmless.

    Raises: ConfigurationError otherwise.
    """
    hooks = [
        *((callback, Callback, PER_BATCH) for callback in callbacks),
        (module, LightningModule, PER_BATCH + TRANSFERS),
        (data, LightningDataModule, TRANSFERS),
    ]
    for owner, base, names in hooks:
        for name in acting_hooks(type(owner), base, names):
            raise ConfigurationError(
                f"data.iterations_per_batch is {getattr(data, 'iterations_per_batch', 1)}, but"
                f" {type(owner).__name__}.{name} acts on every batch: set data.iterations_per_batch to 1, or if it may"
                f" act once for several iterations, give {type(owner).__name__} the attribute"
                " `acts_per_iteration = False`."
            )


def acting_hooks(kind: type, base: type, names: tuple[str, ...]) -> Iterator[str]:
    """Yield the hooks that a class overrides without `acts_per_iteration = False` in that class or a subclass."""
    for name in names:
        mro = kind.__mro__
        definer = next(each for each in mro if name in vars(each))
        below = mro[: mro.index(definer) + 1]
        declared = any(vars(each).get("acts_per_iteration") is False or each in INDIFFERENT for each in below)
        if definer not in base.__mro__ and not declared:
            yield name
