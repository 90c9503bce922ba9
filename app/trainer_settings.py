"""Refuse, in one sentence each, what the user asks of Lightning's Trainer, callbacks and loggers and cannot have."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException

from datamodules.types import UsageError

REPLACED: dict[str, tuple[tuple[object, ...], str]] = {
    "gradient_clip_val": ((None, 0), "use `--model.max_grad_norm`"),
    "gradient_clip_algorithm": ((None,), "use `--model.max_grad_norm`, which clips the global norm"),
    "accumulate_grad_batches": ((None, 1), "use fewer `--model.minibatches` (and `--model.max_grad_norm` to clip)"),
}
"""Trainer settings that cannot act on manual optimisation: values without effect, and what to use instead."""

LARGEST_SEED = 2**32 - 1


def check_settings(settings: Any) -> None:
    """Raises: UsageError for a Trainer setting that cannot act, and for a seed out of range."""
    for key, (neutral, instead) in REPLACED.items():
        if settings.trainer.get(key) not in neutral:
            raise UsageError(f"`--trainer.{key}` does not act where algorithms step by themselves: {instead}.")
    seed = settings.get("seed_everything")
    if isinstance(seed, int) and not isinstance(seed, bool) and not 0 <= seed <= LARGEST_SEED:
        raise UsageError(f"`--seed_everything` is {seed}; it must lie between 0 and {LARGEST_SEED}.")
    for callback in settings.trainer.get("callbacks") or ():
        if str(_class_path(callback)).endswith("StochasticWeightAveraging"):
            raise UsageError(
                "The callback StochasticWeightAveraging averages at the ends of epochs, and a run is one epoch: use"
                " EMAWeightAveraging, which averages after every iteration."
            )


def _class_path(callback: Any) -> str:
    found = callback.get("class_path") if isinstance(callback, Mapping) else getattr(callback, "class_path", None)
    return str(found or type(callback).__name__)


@contextmanager
def one_sentence() -> Iterator[None]:
    """Turn what Lightning itself raises about a setting, or about a package that it misses, into a UsageError."""
    try:
        yield
    except (ModuleNotFoundError, MisconfigurationException, TypeError) as error:
        *_, (frame, _) = walk_tb(error.__traceback__)
        if not str(frame.f_globals.get("__name__")).startswith("lightning."):
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
