"""Tell exceptions raised inside an environment's code from exceptions caused by the values it returned.

The distinction is made only after an error, so that steps cost nothing; worker processes without torch import this.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any

import numpy as np

from datamodules.core.signals import SignalExit

ADAPTER_MODULES = re.compile(
    r"(datamodules\.(env_interface\.(env_errors|obs_parts|spaces)|vector\.(async|restarting|sync)_vector_env"
    r"|vector\.gymnasium_adapter|multi_agent\.(parallel_vector_env|vector_adapter)|worker_pool\.worker|wrappers\.\w+)"
    r"|gymnasium\.(core|vector|wrappers)|functools|numpy)(\.|$)"
)
"""Pattern of the modules that process an environment's return values."""

OWN_CODE = "The environment or the network"
"""Name of the code that runs in a step of an on-device environment."""


def refuse_exit(error: BaseException, name: str) -> None:
    """Prevent an environment from ending the program with SystemExit, as if the run were finished.

    Raises: RuntimeError instead of a SystemExit that no signal caused.
    """
    if isinstance(error, SystemExit) and not isinstance(error, SignalExit):
        raise RuntimeError(
            f"{name} raised SystemExit({error.code!r}), which would end the program: let an environment end its"
            " episodes by `terminated` or `truncated`, and raise another exception for an error."
        ) from error


@contextmanager
def exits_refused(name: str) -> Iterator[None]:
    """Apply `refuse_exit` to every exit inside the context."""
    try:
        yield
    except SystemExit as error:
        refuse_exit(error, name)
        raise


def is_return_value_error(error: BaseException) -> bool:
    """Return True if an error was caused by an environment's return values rather than raised in its code."""
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in walk_tb(error.__traceback__)]
    kinds = TypeError, ValueError, AttributeError, LookupError
    return isinstance(error, kinds) and all(ADAPTER_MODULES.match(module) for module in modules)


def require_shape(value: Any, shape: Any, what: str) -> None:
    """Check a shape, or those of parts by name, that numpy would otherwise broadcast silently.

    Raises: ValueError for another shape, which `is_return_value_error` recognises.
    """
    if isinstance(shape, dict):
        for name, each in shape.items():
            require_shape(value[name], each, f"{what}'s {name}")
    elif getattr(value, "shape", None) != shape and np.shape(value) != shape:
        shown = "" if np.ndim(value) else f" {np.asarray(value).item()!r:.60}"
        raise ValueError(f"cannot put {what}{shown} of shape {np.shape(value)} into shape {shape}")


def violation_message(name: str, obs_shape: Any, what: object) -> str:
    """Return a one-sentence message about an environment's invalid return values.

    Args:
        name: name of the environment.   obs_shape: shape of its observations, or those of their parts by name.
        what: message of Python or numpy.
    """
    return (
        f"{name} returned invalid values after its first steps ({str(what).rstrip('.')}): let every reset"
        " return (obs, info) and every step (obs, reward, terminated, truncated, info), obs always numbers of shape"
        f" {obs_shape}."
    )
