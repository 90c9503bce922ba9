"""Environments in processes that are begun anew after they failed: how often, and when to give up."""

from collections import deque

from lightning.pytorch.utilities import rank_zero_warn

from datamodules.core.errors import UsageError

WINDOW = 1_000
"""Environment steps within which more than `max(3, num_envs)` restarts end the run."""


class Restarts:
    """Counts restarts and says why each was needed.

    Args:
        name: the environment, for messages.   num_envs: how many copies.

    Attributes:
        number: restarts so far.   steps: environment steps so far, which the owner adds.
    """

    def __init__(self, name: str, num_envs: int):
        self.name, self.limit = name, max(3, num_envs)
        self.number, self.steps = 0, 0
        self._recent: deque[int] = deque()

    def note(self, why: str) -> None:
        """Count a restart.

        Args:
            why: which environment failed, and how.

        Raises: UsageError for too many of them within `WINDOW` steps.
        """
        self.number += 1
        self._recent.append(self.steps)
        while self._recent[0] < self.steps - WINDOW:
            self._recent.popleft()
        if len(self._recent) > self.limit:
            last = why.strip().splitlines()[-1].rstrip(".")
            raise UsageError(
                f"{self.name} was restarted more than {self.limit} times within {WINDOW:,} environment steps (data."
                f"on_env_error is restart), last because of this: {last}; mend the environment."
            )
        rank_zero_warn(f"Restart {self.number} of an environment, whose episode is dropped. {why}")
