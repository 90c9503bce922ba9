"""TrainingProgress: progress bar with environment steps, speed, returns and remaining time."""

import math
import sys
import time
from collections import deque
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ProgressBar
from tqdm import tqdm

SHOWN = {"return": "rollout/return_mean", "eval": "eval/return_mean"}
"""Labels of values in the bar, and their logged tags."""

RECENT_SECONDS = 10.0


class TrainingProgress(ProgressBar):
    """Progress bar: environment steps done and total, steps per second, mean returns and the remaining time.

    On a terminal one bar, redrawn in place; otherwise (a file, a pipe, a batch system) a plain line at intervals, and
    one at the end. The speed is that of the last ten seconds, at the end that of the whole session, evaluation
    included; the remaining time assumes the average speed of this session. Steps before the run, by the agent of an
    imported checkpoint, are included in the steps done and in the total; the length of the run is unchanged.

    Args:
        refresh_every_s: seconds between redraws on a terminal.
        line_every_s: seconds between lines otherwise.
    """

    acts_per_iteration = False

    def __init__(self, refresh_every_s: float = 0.2, line_every_s: float = 10.0):
        super().__init__()
        self.refresh_every_s, self.line_every_s = refresh_every_s, line_every_s
        self.is_enabled = True
        self._bar: tqdm | None = None
        self._next = math.inf
        self._recent: deque[tuple[float, int]] = deque()

    def enable(self) -> None:
        """Enable the bar."""
        self.is_enabled = True

    def disable(self) -> None:
        """Disable the bar."""
        self.is_enabled = False

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print a line above the bar."""
        tqdm.write(" ".join(map(str, args)), file=sys.stdout, **kwargs)
        sys.stdout.flush()

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Start the bar."""
        now = time.monotonic()
        self._start = (now, trainer.global_step, pl_module.env_steps)
        self._total = trainer.datamodule.total_env_steps + pl_module.earlier_env_steps  # type: ignore[attr-defined]
        self._recent.clear()
        self._recent.append((now, pl_module.env_steps))
        if self.is_enabled and sys.stdout.isatty():
            layout = "{percentage:3.0f}%|{bar:20}| {desc}"
            total = iterations(trainer)
            self._bar = tqdm(total=total, initial=trainer.global_step, bar_format=layout, file=sys.stdout, leave=True)
        self._next = now + (self.refresh_every_s if self._bar is not None else self.line_every_s)

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Refresh, if due."""
        now = time.monotonic()
        if now >= self._next:
            self._show(trainer, pl_module, now)
            self._next = now + (self.refresh_every_s if self._bar is not None else self.line_every_s)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Show the final state of the run."""
        self._show(trainer, pl_module, time.monotonic(), ended=True)
        self._close()

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Leave the line unchanged."""
        self._close()

    def _show(self, trainer: Trainer, pl_module: Any, now: float, ended: bool = False) -> None:
        if not self.is_enabled:
            return
        self._recent.append((now, pl_module.env_steps))
        while len(self._recent) > 2 and now - self._recent[0][0] > RECENT_SECONDS:
            self._recent.popleft()
        text = self.line(trainer, pl_module, now, ended)
        if self._bar is None:
            self.print(f"{pl_module.progress:4.0%}  {text}")
            return
        self._bar.n, self._bar.total = trainer.global_step, iterations(trainer)
        self._bar.set_description_str(text)

    def line(self, trainer: Trainer, pl_module: Any, now: float, ended: bool = False) -> str:
        """Return the text at time `now` of the monotonic clock, during the session or at its end."""
        start_time, start_step, start_env_steps = self._start
        done, remaining = trainer.global_step - start_step, iterations(trainer) - trainer.global_step
        since, env_steps_since = (start_time, start_env_steps) if ended else self._recent[0]
        speed = (pl_module.env_steps - env_steps_since) / max(now - since, 1e-9)
        parts = [f"{pl_module.env_steps:,} of {self._total:,} env steps", f"{speed:,.0f}/s"]
        parts += [
            f"{name} {pl_module.last_logged[tag]:.4g}" for name, tag in SHOWN.items() if tag in pl_module.last_logged
        ]
        if done and remaining and not ended:
            parts.append(f"{tqdm.format_interval((now - start_time) / done * remaining)} left")
        else:
            parts.append(f"{tqdm.format_interval(now - start_time)} in all")
        return ", ".join(parts)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        self._next = math.inf


def iterations(trainer: Any) -> int:
    """Return the iterations of the whole run."""
    return int(trainer.datamodule.iterations)
