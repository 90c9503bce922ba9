"""Whose mistake an error in the middle of a run is: the environment's own code's, or that of what it returned.

Nothing is looked at while all is well, so that a step costs what it did; workers that import no torch read this too.
"""

import re
from collections.abc import Sequence
from traceback import walk_tb

PLUMBING = re.compile(
    r"(datamodules\.(gymnasium_env|pool_worker|spaces|workers)|gymnasium\.(core|vector|wrappers)|functools|numpy)(\.|$)"
)
"""Modules that handle what an environment returned."""


def breaks_contract(error: Exception) -> bool:
    """Whether plumbing stumbled over what an environment returned, while no code of the environment's own ran."""
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in walk_tb(error.__traceback__)]
    kinds = TypeError, ValueError, AttributeError, LookupError
    return isinstance(error, kinds) and all(PLUMBING.match(module) for module in modules)


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
