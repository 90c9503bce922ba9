"""Whose mistake an error in the middle of a run is: the environment's own code's, or that of what it returned.

Nothing is looked at while all is well, so that a step costs what it did; workers that import no torch read this too.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any

import numpy as np

from datamodules.core.signals import SignalExit

PLUMBING = re.compile(
    r"(datamodules\.(blame|gymnasium_env|pool_worker|restarting_vector_env|spaces|workers)|gymnasium\.(core|vector|wrappers)|functools|numpy)(\.|$)"
)
"""Modules that handle what an environment returned."""

OWN_CODE = "The environment or the network"
"""Whose code runs in a step that is made of tensors."""


def refuse_exit(error: BaseException, name: str) -> None:
    """Refuse to let an environment end the program, as if the run were finished.

    Raises: RuntimeError in place of a SystemExit that no signal caused.
    """
    if isinstance(error, SystemExit) and not isinstance(error, SignalExit):
        raise RuntimeError(
            f"{name} raised SystemExit({error.code!r}), which would end the program: let an environment end its"
            " episodes by `terminated` or `truncated`, and raise another exception for an error."
        ) from error


@contextmanager
def exits_refused(name: str) -> Iterator[None]:
    """Refuse exits as `refuse_exit` does, of all that happens inside the context."""
    try:
        yield
    except SystemExit as error:
        refuse_exit(error, name)
        raise


def breaks_contract(error: BaseException) -> bool:
    """Whether plumbing stumbled over what an environment returned, while no code of the environment's own ran."""
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in walk_tb(error.__traceback__)]
    kinds = TypeError, ValueError, AttributeError, LookupError
    return isinstance(error, kinds) and all(PLUMBING.match(module) for module in modules)


def require_shape(value: Any, shape: tuple[int, ...], what: str) -> None:
    """Refuse what numpy would broadcast in silence.

    Raises: ValueError for another shape, which `breaks_contract` recognises.
    """
    if np.shape(value) != shape:
        shown = "" if np.ndim(value) else f" {np.asarray(value).item()!r:.60}"
        raise ValueError(f"cannot put {what}{shown} of shape {np.shape(value)} into shape {shape}")


def breach(name: str, obs_shape: Sequence[int], what: object) -> str:
    """One sentence.

    Args:
        name: the environment.   obs_shape: of its observation.   what: Python or numpy said where it stumbled.
    """
    return (
        f"{name} stopped keeping Gymnasium's contract after its first steps ({str(what).rstrip('.')}): let every reset"
        " return (obs, info) and every step (obs, reward, terminated, truncated, info), obs always numbers of shape"
        f" {tuple(obs_shape)}."
    )
