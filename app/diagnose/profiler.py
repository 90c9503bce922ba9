"""A few seconds of the run that a command line describes, to see what it does and what each part of it costs."""

import sys
import time
from collections.abc import Sequence
from typing import Any

from lightning.pytorch import Callback, Trainer

from app.cli.main import TRAINER_DEFAULTS, LeydenCLI
from app.cli.parser import OneSentenceParser
from app.diagnose.microbenchmarks import environment_alone, policy_alone
from app.peers.base import FOREVER
from app.timing import peak_memory_mib, synchronize
from callbacks.performance.compile import Compile
from callbacks.performance.execution_summary import backend, in_force
from callbacks.performance.gpu_monitor import Watch, device_uuid, measured
from callbacks.performance.nvml import NVML, NoNVML
from callbacks.performance.thread_tuner import Sample, Threads, climb, most_threads
from callbacks.performance.throughput import joints
from datamodules.core.errors import UsageError

WARM_UP = 3
"""Trainer batches before the clock starts: the first one compiles."""

SECONDS = 2.0
"""Length of each measurement."""

OF_ACTING = ("env", "inference")
"""Tests of what a run does only where its policy acts."""

QUIET: dict[str, Any] = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "limit_val_batches": 0,
    "devices": 1,
    "num_nodes": 1,
    "strategy": "auto",
}
"""One process that only trains."""


class Diagnosed(LeydenCLI):
    """The run that `fit` would make of the same words, with nothing but what decides the joints' speed."""

    def _run_subcommand(self, subcommand: str) -> None:
        """Wait: `measure` runs it."""

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Make a quiet Trainer.

        Raises:
            UsageError: if a checkpoint was given.
        """
        if self.ckpt_path is not None:
            raise UsageError("`diagnose` measures a run from its start: leave `--ckpt_path` out.")
        self.save_config_callback, self.trainer_defaults = None, TRAINER_DEFAULTS
        own = self.config_init[self.subcommand].trainer.callbacks or []
        kept = [callback for callback in own if isinstance(callback, Compile | Threads)]
        return super().instantiate_trainer(**kwargs, **QUIET, callbacks=kept)


class Measurement(Callback):
    """Measures between two iterations of a fit and ends it; `found` is what came out, in seconds."""

    acts_per_iteration = False

    def __init__(self, test: str):
        self.test, self.batches, self.begun = test, 0, 0.0
        self.found: dict[str, Any] = {}
        self.watch: Watch | None = None

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Warm up, let the Trainer run while the clock does, then look at the parts alone."""
        self.batches += 1
        if self.batches < WARM_UP:
            return
        if self.batches == WARM_UP:
            self.found["in_force"] = in_force(trainer, pl_module)
            collector = trainer.datamodule.collector
            self.found["backend"] = None if collector is None else backend(collector.envs)
            self._begin(trainer, pl_module)
        elif time.perf_counter() - self.begun >= SECONDS:
            self._end(trainer, pl_module)
            self._look_at_parts(trainer, pl_module)
            trainer.should_stop = True

    def _begin(self, trainer: Trainer, pl_module: Any) -> None:
        device = trainer.strategy.root_device
        if device.type == "cuda" and self.test in ("all", "gpu"):
            self._watch_gpu(device.index or 0)
        synchronize(device)
        known = joints(trainer, pl_module)
        self.found["could_be_compiled"] = [name for name, each in known.items() if each.parts and each.mode == "off"]
        for joint in known.values():
            joint.seconds()
        self.begun, self._before = time.perf_counter(), (trainer.global_step, pl_module.env_steps)

    def _watch_gpu(self, index: int) -> None:
        try:
            self.watch = Watch(NVML({index: device_uuid(index)}), interval_s=0.1)
            self.watch.start()
        except NoNVML as reason:
            self.found["gpu"] = str(reason)

    def _end(self, trainer: Trainer, pl_module: Any) -> None:
        device = trainer.strategy.root_device
        synchronize(device)
        elapsed = time.perf_counter() - self.begun
        if self.watch is not None:
            self.watch.stop()
            self.found["gpu"] = {tag.rpartition("/")[2]: value for tag, value in measured(self.watch.take()).items()}
        iterations = trainer.global_step - self._before[0]
        spent = {name: joint.seconds() / iterations for name, joint in joints(trainer, pl_module).items()}
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        taken = sum(seconds for name, seconds in spent.items() if name not in data.beside)
        spent["other"] = max(0.0, elapsed / iterations - taken)
        self.found |= {
            "beside": list(data.beside),
            "env_steps_per_s": (pl_module.env_steps - self._before[1]) / elapsed,
            "iteration_s": elapsed / iterations,
            **{f"{name}_s": seconds for name, seconds in spent.items()},
            "peak_memory_mib": peak_memory_mib(device),
        }

    def _look_at_parts(self, trainer: Any, pl_module: Any) -> None:
        collector = trainer.datamodule.collector
        if collector is None:
            return
        trainer.datamodule.settle()
        if self.test == "all" and collector.envs.device.type == "cpu":
            _, times = climb(Sample(trainer, pl_module).seconds, most_threads(1 + len(trainer.datamodule.beside)))
            self.found["threads_ms"] = {threads: seconds * 1e3 for threads, seconds in times.items()}
        with trainer.precision_plugin.forward_context():
            if self.test in ("all", "inference"):
                call = policy_alone(collector, SECONDS / 2)
                named = {f"{name}_ms": seconds * 1e3 for name, seconds in call._asdict().items()}
                self.found["inference"] = {"rows": collector.rows, **named}
            if self.test in ("all", "env"):
                step_s = environment_alone(collector, SECONDS / 2)
                speed = collector.rows / step_s
                self.found["environment"] = {"step_s": step_s, "env_steps_per_s": speed}


def described(words: Sequence[str]) -> Diagnosed:
    """Data, model and Trainer of `fit` with these words, endless and not yet run.

    Raises:
        UsageError, SystemExit: when the words are bad.
    """
    sys.argv[1:] = ["fit", *words]
    OneSentenceParser.begin()
    run = Diagnosed()
    run.datamodule.total_env_steps = FOREVER
    return run


def measure(run: Diagnosed, test: str) -> dict[str, Any]:
    """Fit for a moment; what was found, times in seconds an iteration.

    Args:
        test: all | env | inference | update | gpu: which parts to look at besides the iteration.

    Raises:
        UsageError: as fit does, and where there is no such part.
    """
    if test in OF_ACTING and not run.datamodule.acts:
        raise UsageError(
            f"--test is {test}, but data that was stored before steps no environment and asks no policy: use --test"
            " update."
        )
    measurement = Measurement(test)
    trainer: Any = run.trainer
    trainer.callbacks.append(measurement)
    trainer.fit(run.model, datamodule=run.datamodule)
    return measurement.found
