"""Run a command line's training for a few seconds, and measure its parts."""

import sys
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from lightning.pytorch import Callback, Trainer

from app.cli.main import LeydenCLI
from app.cli.parser import ConciseParser
from app.diagnose.microbenchmarks import ticks_per_step, time_env_only, time_policy_only
from app.peers.base import UNREACHABLE_STEPS
from app.timing import past_warm_up, peak_memory_mib, synchronize
from callbacks.performance.compile import Compile
from callbacks.performance.execution_summary import backend, execution_summary
from callbacks.performance.gpu_monitor import Sample, SamplerThread, device_uuid, gpu_metrics
from callbacks.performance.nvml import NVML, NvmlUnavailable
from callbacks.performance.thread_tuner import ThreadTuner, WorkloadTimer, hill_climb, most_threads
from callbacks.performance.throughput import phases
from datamodules.core.errors import ConfigurationError
from modules.manual_backward.callback import ManualBackward

WARM_UP = 3
"""Trainer batches with learning before the measurement: the first one compiles."""

LEARNING_STARTS = 1_000
"""Most env steps before the first update of a measured run; a run of `fit` may have more."""

SECONDS = 2.0
"""Length of each measurement."""

OF_ACTING = ("env", "inference")
"""Measurements that require a policy that collects."""

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
"""Settings of a single process that only trains."""


class UnstartedRun(LeydenCLI):
    """Run of `fit` with the same arguments, without parts that do not affect the phases' speed."""

    def _run_subcommand(self, subcommand: str) -> None:
        """Do nothing: `measure` runs it."""

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Create a Trainer without logging and evaluation.

        Raises:
            ConfigurationError: if a checkpoint was given.
        """
        if self.ckpt_path is not None:
            raise ConfigurationError("`diagnose` measures a run from its start: leave `--ckpt_path` out.")
        self.save_config_callback = None
        own = self.config_init[self.subcommand].trainer.callbacks or []
        kept = [callback for callback in own if isinstance(callback, Compile | ThreadTuner)]
        return super().instantiate_trainer(**kwargs, **QUIET, callbacks=kept)

    def program_callbacks(self, configured: Sequence[Callback], has_checkpoints: bool) -> list[Callback]:
        """Return the callback that determines how the phases are computed."""
        return [ManualBackward()]


class ProfilerCallback(Callback):
    """Measure between two iterations of a fit and end it; `found` holds the results in seconds."""

    acts_per_iteration = False

    def __init__(self, test: str):
        self.test, self.batches, self.begun = test, 0, 0.0
        self.found: dict[str, Any] = {}
        self.watch: SamplerThread | None = None

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Warm up, time the Trainer, then time the parts separately."""
        self.batches += bool(self.batches) or past_warm_up(trainer, pl_module)
        if self.batches < WARM_UP:
            return
        if self.batches == WARM_UP:
            self.found["execution"] = execution_summary(trainer, pl_module)
            collector = trainer.datamodule.collector
            self.found["backend"] = None if collector is None else backend(collector.envs)
            envs = None if collector is None else getattr(collector.envs, "unwrapped", collector.envs)
            self.found["workers"] = getattr(envs, "num_workers", 1)
            ticks = 1 if collector is None else ticks_per_step(collector.envs, trainer.datamodule.train_wrappers)
            self.found["ticks_per_step"] = ticks
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
        known = phases(trainer, pl_module)
        self.found["could_be_compiled"] = [
            name for name, each in known.items() if each.compile_targets and each.mode == "off"
        ]
        for phase in known.values():
            phase.pop_seconds()
        self.begun, self._before = time.perf_counter(), (trainer.global_step, pl_module.env_steps)

    def _watch_gpu(self, index: int) -> None:
        try:
            self.watch = SamplerThread(NVML({index: device_uuid(index)}), interval_s=0.1)
            self.watch.start()
        except NvmlUnavailable as reason:
            self.found["gpu"] = str(reason)

    def _end(self, trainer: Trainer, pl_module: Any) -> None:
        device = trainer.strategy.root_device
        synchronize(device)
        elapsed = time.perf_counter() - self.begun
        if self.watch is not None:
            self.watch.stop()
            self.found["gpu"] = gpu_results(self.watch.pop_samples())
        iterations = trainer.global_step - self._before[0]
        spent = {name: phase.pop_seconds() / iterations for name, phase in phases(trainer, pl_module).items()}
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        spent["other"] = outside_phases(elapsed / iterations, spent, data.concurrent_phases)
        speed = (pl_module.env_steps - self._before[1]) / elapsed
        self.found |= {
            "beside": list(data.concurrent_phases),
            "env_steps_per_s": speed,
            "ticks_per_s": speed * self.found["ticks_per_step"],
            "iterations_per_s": iterations / elapsed,
            "iteration_s": elapsed / iterations,
            **{f"{name}_s": seconds for name, seconds in spent.items()},
            "peak_memory_mib": peak_memory_mib(device),
        }

    def _look_at_parts(self, trainer: Any, pl_module: Any) -> None:
        collector = trainer.datamodule.collector
        if collector is None:
            return
        trainer.datamodule.wait()
        if self.test == "all" and collector.envs.device.type == "cpu":
            _, times = hill_climb(
                WorkloadTimer(trainer, pl_module).seconds, most_threads(1 + len(trainer.datamodule.concurrent_phases))
            )
            self.found["threads_ms"] = {threads: seconds * 1e3 for threads, seconds in times.items()}
        with trainer.precision_plugin.forward_context():
            if self.test in ("all", "inference"):
                call = time_policy_only(collector, SECONDS / 2)
                named = {f"{name}_ms": seconds * 1e3 for name, seconds in call._asdict().items()}
                self.found["inference"] = {"rows": collector.rows, **named, "calls_per_s": 1 / call.mean}
            if self.test in ("all", "env"):
                step_s = time_env_only(collector, SECONDS / 2)
                speed = collector.envs.num_envs / step_s
                self.found["environment"] = {
                    "step_s": step_s,
                    "env_steps_per_s": speed,
                    "ticks_per_s": speed * self.found["ticks_per_step"],
                }


def outside_phases(iteration: float, phases: Mapping[str, float], concurrent: Collection[str]) -> float:
    """Return the seconds of an iteration that are in no phase; of concurrent phases and the others the longer count.

    Args:
        iteration: seconds of an iteration.
        phases: seconds of each phase.
        concurrent: names of the phases that run beside the others.
    """
    beside = sum(seconds for name, seconds in phases.items() if name in concurrent)
    return max(0.0, iteration - max(beside, sum(phases.values()) - beside))


def gpu_results(samples: Sequence[Sample]) -> dict[str, float]:
    """Return the means and peaks of the samples of one GPU, with its lowest and highest utilisation in percent."""
    values = {tag.rpartition("/")[2]: value for tag, value in gpu_metrics(samples).items()}
    readings = [reading for _, by_index in samples for reading in by_index.values()]
    if not readings:
        return values
    used = [reading.utilisation for reading in readings]
    share = max(reading.memory_mib / reading.memory_total_mib for reading in readings)
    return values | {"utilisation_min": min(used), "utilisation_max": max(used), "memory_peak_percent": 100 * share}


def build_run(words: Sequence[str]) -> UnstartedRun:
    """Create data, model and Trainer of `fit` with these arguments, without an end, and do not run it.

    Raises:
        ConfigurationError, SystemExit: if the arguments are invalid.
    """
    sys.argv[1:] = ["fit", *words]
    ConciseParser.begin()
    run = UnstartedRun()
    run.datamodule.total_env_steps = UNREACHABLE_STEPS
    if hasattr(run.datamodule, "learning_starts"):
        run.datamodule.learning_starts = min(run.datamodule.learning_starts, LEARNING_STARTS)
    return run


def measure(run: UnstartedRun, test: str) -> dict[str, Any]:
    """Run a short fit and return the results, times in seconds per iteration.

    Args:
        test: all | env | inference | update | gpu: parts to measure besides the iteration.

    Raises:
        ConfigurationError: as fit does, and if there is no such part.
    """
    if test in OF_ACTING and not run.datamodule.collects_online:
        raise ConfigurationError(
            f"--test is {test}, but data that was stored before steps no environment and asks no policy: use --test"
            " update."
        )
    measurement = ProfilerCallback(test)
    trainer: Any = run.trainer
    trainer.callbacks.append(measurement)
    trainer.fit(run.model, datamodule=run.datamodule)
    return measurement.found
