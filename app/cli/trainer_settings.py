"""Complete the settings of Lightning's Trainer, and refuse unsupported ones with one sentence each."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from traceback import walk_tb
from typing import Any

import yaml
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.accelerators import CUDAAccelerator, MPSAccelerator
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from app.class_paths import canonical_path
from app.cli.config_files import SHARED, configs_folder
from app.cli.error_messages import config_paths
from callbacks.run_control.checkpoint import RunCheckpoint
from callbacks.run_control.divergence_guard import DivergenceGuard
from datamodules.core.errors import ConfigurationError

REPLACED: dict[str, tuple[tuple[object, ...], str]] = {
    "gradient_clip_val": ((None, 0), "use `--model.max_grad_norm`"),
    "gradient_clip_algorithm": ((None,), "use `--model.max_grad_norm`, which clips the global norm"),
    "accumulate_grad_batches": ((None, 1), ""),  # depends on the algorithm, see `larger_minibatches`
}
"""Trainer settings without effect under manual optimization: allowed values, and what to use instead."""

MIN_VALUES: dict[str, tuple[int, str]] = {
    "log_every_n_steps": (1, "to log nothing, set `--trainer.logger false`"),
    "val_check_interval": (1, "to evaluate nothing, set `--trainer.limit_val_batches 0`"),
    "num_sanity_val_steps": (-1, "0 evaluates nothing before the run, -1 everything"),
}
"""Minimum of integer settings, and what to do instead."""

SWITCHES = {"enable_progress_bar": "callbacks.TrainingProgress", "enable_checkpointing": "callbacks.RunCheckpoint"}
"""Trainer settings that switch a shared callback off."""

MODEL = re.compile(r"--model(=|$)")
"""The option that names the algorithm."""

WRITTEN = "# lightning.pytorch=="
"""Beginning of a config that the program has written, which is complete."""

LARGEST_SEED = 2**32 - 1
DURATION = re.compile(r"\s*\d+:\d+:\d+:\d+\s*")


def run_name(argv: Sequence[str]) -> str | None:
    """Return the default name of a run: that of its first config, else of its algorithm; None if it has neither."""
    pairs = zip(argv, [*argv[1:], ""], strict=True)
    models = [value if word == "--model" else word.partition("=")[2] for word, value in pairs if MODEL.match(word)]
    names = [path.stem for path in config_paths(argv)] + [model.rpartition(".")[2] for model in models]
    return re.sub(r"[^A-Za-z0-9._-]", "_", names[0])[:64] if names else None


def as_list(callbacks: Any) -> list[Any]:
    """Return the Trainer's setting of callbacks, which may be one or null, as a list."""
    return callbacks if isinstance(callbacks, list) else [] if callbacks is None else [callbacks]


@cache
def shared_callbacks() -> tuple[str, ...]:
    """Return the class paths of the callbacks that every run shares."""
    shared = yaml.safe_load((configs_folder() / SHARED).read_text(encoding="utf-8"))
    return tuple(each["class_path"] for each in shared["trainer"]["callbacks"])


def merge_callbacks_(trainer: Any) -> None:
    """Let the last callback of a class that runs share take the place of the first, in place; drop those switched off.

    Args:
        trainer: parsed settings of the Trainer.
    """
    merged: list[Any] = []
    off = [path for switch, path in SWITCHES.items() if trainer.get(switch) is False]
    for each in as_list(trainer.get("callbacks")):
        path = canonical_path(each.class_path)
        if path in off:
            continue
        place = next((i for i, other in enumerate(merged) if canonical_path(other.class_path) == path), None)
        if place is None or path not in shared_callbacks():
            merged.append(each)
        else:
            merged[place] = each
    if merged:
        trainer["callbacks"] = merged


def missing_callbacks(callbacks: Sequence[Callback], has_checkpoints: bool) -> list[Callback]:
    """Return the callbacks to add to those of a run, so that nothing is lost.

    Args:
        callbacks: the configured callbacks.
        has_checkpoints: whether the run saves checkpoints.
    """
    needed: list[Callback] = []
    if has_checkpoints and not any(isinstance(each, ModelCheckpoint) for each in callbacks):
        needed.append(RunCheckpoint())
    if not any(isinstance(each, DivergenceGuard) for each in callbacks):
        needed.append(DivergenceGuard())
    return needed


def replaced_callbacks(trainer: Any, argv: Sequence[str]) -> str | None:
    """Return a sentence if a config of the user replaces the shared callbacks by a list that lacks some of them.

    Args:
        trainer: parsed settings of the Trainer.
        argv: the verb and its arguments.
    """
    texts = {path: path.read_text(encoding="utf-8") for path in config_paths(argv)}
    users = {path: text for path, text in texts.items() if not is_complete(path, text)}
    replacing = [path for path, text in users.items() if "callbacks" in (yaml.safe_load(text).get("trainer") or {})]
    own = {canonical_path(each.class_path) for each in as_list(trainer.get("callbacks"))}
    optional = [path for path in shared_callbacks() if not path.endswith((".RunCheckpoint", ".DivergenceGuard"))]
    without = [path.rpartition(".")[2] for path in optional if path not in own]
    if not replacing or not without:
        return None
    return (
        f"`trainer.callbacks` ({replacing[-1]}) replaces the shared callbacks: the run is without"
        f" {', '.join(without)}. Write `callbacks+:` to add to them."
    )


def is_complete(path: Path, text: str) -> bool:
    """Return whether a config is a shipped one or was written by the program, which leave out callbacks on purpose."""
    return path.resolve().parent == configs_folder() or text.startswith(WRITTEN)


def check_settings(settings: Any) -> None:
    """Raise ConfigurationError for a Trainer setting without effect, and for a seed out of range."""
    for key, (neutral, instead) in REPLACED.items():
        if settings.trainer.get(key) not in neutral:
            cure = instead or larger_minibatches(settings)
            raise ConfigurationError(f"`--trainer.{key}` does not act where algorithms step by themselves: {cure}.")
    for key, (least, instead) in MIN_VALUES.items():
        value = settings.trainer.get(key)
        if isinstance(value, int) and value < least:
            raise ConfigurationError(f"`--trainer.{key}` is {value}; it must be at least {least}: {instead}.")
    for key in ("max_time", "val_check_interval"):
        value = settings.trainer.get(key)
        if isinstance(value, str) and not DURATION.fullmatch(value):
            raise ConfigurationError(
                f"`--trainer.{key}` is {value}; write a time as days:hours:minutes:seconds, 00:01:30:00."
            )
    check_devices(settings.trainer)
    seed = settings.get("seed_everything")
    if isinstance(seed, int) and not isinstance(seed, bool) and not 0 <= seed <= LARGEST_SEED:
        raise ConfigurationError(f"`--seed_everything` is {seed}; it must lie between 0 and {LARGEST_SEED}.")


def larger_minibatches(settings: Any) -> str:
    """Return which setting of this algorithm or its data makes minibatches larger, as accumulated gradients would."""
    if "num_minibatches" in (settings.get("model.init_args") or {}):
        return "use fewer `--model.num_minibatches` for larger ones"
    if "batch_size" in (settings.get("data.init_args") or {}):
        return "use a larger `--data.batch_size`"
    return "let the algorithm's own `update` use larger minibatches"


def check_devices(trainer: Any) -> None:
    """Raise ConfigurationError for a missing accelerator, an invalid number of devices, and spawned processes."""
    accelerator, devices = trainer.get("accelerator") or "auto", trainer.get("devices")
    there = {"cuda": CUDAAccelerator.is_available(), "mps": MPSAccelerator.is_available()}
    there["gpu"] = any(there.values())
    if accelerator == "tpu":
        raise ConfigurationError("`--trainer.accelerator` is tpu, but runs need a CPU or a GPU: use auto, cpu or gpu.")
    if not there.get(accelerator, True):
        raise ConfigurationError(
            f"`--trainer.accelerator` is {accelerator}, but there is no such device: use auto or cpu."
        )
    on_cpu = accelerator == "cpu" or (accelerator == "auto" and not there["gpu"])
    if on_cpu and devices not in (None, "auto") and not (str(devices).isdigit() and int(devices) > 0):
        raise ConfigurationError(
            f"`--trainer.devices` is {devices}, but this run is on the CPU, where it is the number of processes: set it"
            " to 1 or more."
        )
    if str(trainer.get("strategy")).startswith("ddp_spawn"):
        raise ConfigurationError(
            "`--trainer.strategy` ddp_spawn copies the run to its processes, which cannot be: use ddp."
        )


@contextmanager
def one_sentence() -> Iterator[None]:
    """Convert Lightning's errors about a setting or a missing package to ConfigurationError."""
    try:
        yield
    except (ModuleNotFoundError, MisconfigurationException, TypeError, RuntimeError) as error:
        *_, (frame, _) = walk_tb(error.__traceback__)
        whose = "lightning.pytorch.callbacks." if isinstance(error, RuntimeError) else "lightning."
        if not str(frame.f_globals.get("__name__")).startswith(whose):
            raise
        said = missing(error) if isinstance(error, ModuleNotFoundError) else " ".join(str(error).split())
        raise ConfigurationError(said) from error


def missing(error: ModuleNotFoundError) -> str:
    """Return a sentence that names the package to install."""
    said = " ".join(str(error).split())
    package = error.name.partition(".")[0] if error.name else said.split("'")[1] if "'" in said else ""
    for word in ("Please install", "pip install", "Try installing"):
        if word in said:
            return said
    cure = f"pip install {package}" if package else "install it"
    return f"A callback, logger or setting of the Trainer needs a package that is not installed ({said}): {cure}."
