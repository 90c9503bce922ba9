"""RestartCounter: count restarts of failed environments and end the run if there are too many."""

import warnings
from collections import deque

from lightning.fabric.utilities.rank_zero import rank_zero_only

from datamodules.core.errors import ConfigurationError

RESTART_WINDOW = 1_000
"""Environment steps within which more than `max(3, num_envs)` restarts end the run."""


class RestartCounter:
    """Counter of this rank's restarts, with a warning on this rank that gives the reason for each.

    Args:
        name: name of the environment in messages.   num_envs: number of environments.

    Attributes:
        count: restarts so far.   steps: environment steps so far, updated by the owner.
    """

    def __init__(self, name: str, num_envs: int):
        self.name, self.limit = name, max(3, num_envs)
        self.count, self.steps = 0, 0
        self._recent: deque[int] = deque()

    def record(self, why: str) -> None:
        """Count a restart and warn.

        Args:
            why: which environment failed, and how.

        Raises: ConfigurationError for too many restarts within `RESTART_WINDOW` steps.
        """
        self.count += 1
        self._recent.append(self.steps)
        while self._recent[0] < self.steps - RESTART_WINDOW:
            self._recent.popleft()
        if len(self._recent) > self.limit:
            last = why.strip().splitlines()[-1].rstrip(".")
            raise ConfigurationError(
                f"{self.name} was restarted more than {self.limit} times within {RESTART_WINDOW:,} environment steps"
                f" (data.on_env_error is restart), last because of this: {last}; fix the environment."
            )
        rank = getattr(rank_zero_only, "rank", 0)
        where = f" of rank {rank}" if rank else ""
        warnings.warn(f"Restart {self.count} of an environment{where}, whose episode is dropped. {why}", stacklevel=2)
