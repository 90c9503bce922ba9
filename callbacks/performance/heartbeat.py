"""Heartbeat: write when the last iteration ended, so that a run that hangs can be told from a slow one."""

import json
import os
import platform
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer

from datamodules.core.errors import ConfigurationError

FILE = "heartbeat.json"


class Heartbeat(Callback):
    """Write the time of the last iteration into `heartbeat.json` of the run folder, which `monitor` shows.

    It holds `time` (seconds since the epoch), `iteration`, `env_steps`, `pid` and `host`. Metrics are written every
    `trainer.log_every_n_steps` iterations only; this file says after `interval_s` seconds whether a run still goes on.
    Rank 0 writes it. An evaluation is no iteration. A file that cannot be written does not end the run.

    Args:
        interval_s: least seconds between two writes, at least 0.

    Raises: ConfigurationError for a negative interval.
    """

    acts_per_iteration = False

    def __init__(self, interval_s: float = 5.0):
        if not interval_s >= 0:
            raise ConfigurationError(f"Heartbeat's interval_s is {interval_s}; give seconds, at least 0.")
        self.interval_s = interval_s
        self._written = -float("inf")

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Determine the run folder, by a collective call of all ranks."""
        self._folder = Path(trainer.log_dir or trainer.default_root_dir)

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Write the file, if due."""
        now = time.monotonic()
        if not trainer.is_global_zero or now - self._written < self.interval_s:
            return
        self._written = now
        counters = {"iteration": trainer.global_step, "env_steps": pl_module.env_steps}
        beat = {"time": time.time(), **counters, "pid": os.getpid(), "host": platform.node()}
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            unfinished = self._folder / f".{FILE}.{os.getpid()}.unfinished"
            unfinished.write_text(json.dumps(beat) + "\n", encoding="utf-8")
            unfinished.replace(self._folder / FILE)
