"""Refuse, in one sentence each, what the user asks of Lightning's Trainer, callbacks and loggers and cannot have."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.accelerators import CUDAAccelerator, MPSAccelerator

from datamodules.core.errors import UsageError

REPLACED: dict[str, tuple[tuple[object, ...], str]] = {
    "gradient_clip_val": ((None, 0), "use `--model.max_grad_norm`"),
    "gradient_clip_algorithm": ((None,), "use `--model.max_grad_norm`, which clips the global norm"),
    "accumulate_grad_batches": ((None, 1), "use fewer `--model.minibatches` (and `--model.max_grad_norm` to clip)"),
}
"""Trainer settings that cannot act on manual optimisation: values without effect, and what to use instead."""

LEAST: dict[str, tuple[int, str]] = {
    "log_every_n_steps": (1, "to log nothing, set `--trainer.logger false`"),
    "val_check_interval": (1, "to evaluate nothing, set `--trainer.limit_val_batches 0`"),
    "num_sanity_val_steps": (-1, "0 evaluates nothing before the run, -1 everything"),
}
"""The smallest whole number that a setting may be, and what to do instead."""

LARGEST_SEED = 2**32 - 1
DURATION = re.compile(r"\s*\d+:\d+:\d+:\d+\s*")


def check_settings(settings: Any) -> None:
    """Raises: UsageError for a Trainer setting that cannot act, and for a seed out of range."""
    for key, (neutral, instead) in REPLACED.items():
        if settings.trainer.get(key) not in neutral:
            raise UsageError(f"`--trainer.{key}` does not act where algorithms step by themselves: {instead}.")
    for key, (least, instead) in LEAST.items():
        value = settings.trainer.get(key)
        if isinstance(value, int) and value < least:
            raise UsageError(f"`--trainer.{key}` is {value}; it must be at least {least}: {instead}.")
    for key in ("max_time", "val_check_interval"):
        value = settings.trainer.get(key)
        if isinstance(value, str) and not DURATION.fullmatch(value):
            raise UsageError(f"`--trainer.{key}` is {value}; write a time as days:hours:minutes:seconds, 00:01:30:00.")
    check_devices(settings.trainer)
    seed = settings.get("seed_everything")
    if isinstance(seed, int) and not isinstance(seed, bool) and not 0 <= seed <= LARGEST_SEED:
        raise UsageError(f"`--seed_everything` is {seed}; it must lie between 0 and {LARGEST_SEED}.")


def check_devices(trainer: Any) -> None:
    """Raises: UsageError for an accelerator that is not there, a number of devices that cannot be, and spawning."""
    accelerator, devices = trainer.get("accelerator") or "auto", trainer.get("devices")
    there = {"cuda": CUDAAccelerator.is_available(), "mps": MPSAccelerator.is_available()}
    there["gpu"] = any(there.values())
    if accelerator == "tpu":
        raise UsageError("`--trainer.accelerator` is tpu, but runs need a CPU or a GPU: use auto, cpu or gpu.")
    if not there.get(accelerator, True):
        raise UsageError(f"`--trainer.accelerator` is {accelerator}, but there is no such device: use auto or cpu.")
    on_cpu = accelerator == "cpu" or (accelerator == "auto" and not there["gpu"])
    if on_cpu and devices not in (None, "auto") and not (str(devices).isdigit() and int(devices) > 0):
        raise UsageError(
            f"`--trainer.devices` is {devices}, but this run is on the CPU, where it is the number of processes: set it"
            " to 1 or more."
        )
    if str(trainer.get("strategy")).startswith("ddp_spawn"):
        raise UsageError("`--trainer.strategy` ddp_spawn copies the run to its processes, which cannot be: use ddp.")


@contextmanager
def one_sentence() -> Iterator[None]:
    """Turn what Lightning itself raises about a setting, or about a package that it misses, into a UsageError."""
    try:
        yield
    except (ModuleNotFoundError, MisconfigurationException, TypeError, RuntimeError) as error:
        *_, (frame, _) = walk_tb(error.__traceback__)
        whose = "lightning.pytorch.callbacks." if isinstance(error, RuntimeError) else "lightning."
        if not str(frame.f_globals.get("__name__")).startswith(whose):
            raise
        said = missing(error) if isinstance(error, ModuleNotFoundError) else " ".join(str(error).split())
        raise UsageError(said) from error


def missing(error: ModuleNotFoundError) -> str:
    """Return a sentence that names the package to install."""
    said = " ".join(str(error).split())
    package = error.name.partition(".")[0] if error.name else said.split("'")[1] if "'" in said else ""
    for word in ("Please install", "pip install", "Try installing"):
        if word in said:
            return said
    cure = f"pip install {package}" if package else "install it"
    return f"A callback, logger or setting of the Trainer needs a package that is not installed ({said}): {cure}."
