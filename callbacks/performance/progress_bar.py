"""One line that says how far the run is."""

import math
import sys
import time
from collections import deque
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ProgressBar
from tqdm import tqdm

SHOWN = {"return": "rollout/return_mean", "eval": "eval/return_mean"}
"""What the line calls a value, and the tag it was logged under."""

RECENT_SECONDS = 10.0


class Progress(ProgressBar):
    """Environment steps done and to do, steps per second, mean returns and the time left.

    On a terminal one bar, redrawn in place; elsewhere (a file, a pipe, a batch system) a plain line now and then, and
    one at the end. Between two refreshes an iteration costs a look at the clock. The speed is that of the last ten
    seconds, at the end that of the whole session, evaluation included; the time left assumes the average speed of this
    session. Steps that were made before the run, by the agent of an imported checkpoint, count as done and as to do:
    the run itself is as long as ever.

    Args:
        refresh_every_s: seconds between redraws on a terminal.
        line_every_s: seconds between lines elsewhere.
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
        """Show."""
        self.is_enabled = True

    def disable(self) -> None:
        """Show nothing."""
        self.is_enabled = False

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print a line above the bar."""
        tqdm.write(" ".join(map(str, args)), file=sys.stdout, **kwargs)
        sys.stdout.flush()

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Begin the line."""
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
        """Refresh, if it is time."""
        now = time.monotonic()
        if now >= self._next:
            self._show(trainer, pl_module, now)
            self._next = now + (self.refresh_every_s if self._bar is not None else self.line_every_s)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Show where the run ended."""
        self._show(trainer, pl_module, time.monotonic(), ended=True)
        self._close()

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Leave the line as it is."""
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
        """What there is to say at time `now` of the monotonic clock, in the middle of the session or at its end."""
        started, first, env_steps_first = self._start
        done, to_do = trainer.global_step - first, iterations(trainer) - trainer.global_step
        then, env_steps_then = self._recent[0] if not ended else (started, env_steps_first)
        speed = (pl_module.env_steps - env_steps_then) / max(now - then, 1e-9)
        parts = [f"{pl_module.env_steps:,} of {self._total:,} env steps", f"{speed:,.0f}/s"]
        parts += [f"{name} {pl_module.latest[tag]:.4g}" for name, tag in SHOWN.items() if tag in pl_module.latest]
        if done and to_do and not ended:
            parts.append(f"{tqdm.format_interval((now - started) / done * to_do)} left")
        else:
            parts.append(f"{tqdm.format_interval(now - started)} in all")
        return ", ".join(parts)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        self._next = math.inf


def iterations(trainer: Any) -> int:
    """Iterations of the whole run."""
    return int(trainer.datamodule.iterations)
