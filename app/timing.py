"""Timing, memory and system information for `benchmark` and `diagnose`."""

import math
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import torch

from callbacks.performance.throughput import phases

PACKAGES = ("torch", "lightning", "gymnasium", "numpy", "stable-baselines3", "skrl")
"""Packages whose versions are reported with a measurement."""

PARTS = ("collect", "store", "sample", "prepare", "update", "reprioritize", "other")
"""Parts of an iteration in their order; those of a replay are absent without one, and `other` is outside the phases."""


class Bare(NamedTuple):
    """Cost of iterations without the Trainer: their number, the total seconds, and each phase's fraction of them."""

    iterations: int
    seconds: float
    phases: dict[str, float]


class Latency(NamedTuple):
    """Seconds per call: mean, median, and the 95th and 99th percentile."""

    mean: float
    median: float
    p95: float
    p99: float


def call(function: Callable[[], Any]) -> Any:
    """Call a function of no arguments: the decision of a run of one rank."""
    return function()


def loop_without_trainer(
    trainer: Any, model: Any, seconds: float, decide: Callable[[Callable[[], bool]], bool] = call
) -> Bare:
    """Train for `seconds` without the Trainer, with the objects of its run: collect, prepare, update.

    Nothing is counted or logged. Call it between two iterations of a fit, on every rank; `decide` makes the ranks agree
    on a condition.
    """
    device, running = trainer.strategy.root_device, phases(trainer, model)
    synchronize(device)
    for phase in running.values():
        phase.pop_seconds()
    began, iterations = time.perf_counter(), 0
    while decide(lambda: time.perf_counter() - began < seconds):
        for _ in range(trainer.log_every_n_steps):
            with trainer.precision_plugin.train_step_context():
                model.run_iteration(trainer.datamodule.collect())
        synchronize(device)
        iterations += trainer.log_every_n_steps
    elapsed = time.perf_counter() - began
    return Bare(iterations, elapsed, {name: phase.pop_seconds() for name, phase in running.items()})


def past_warm_up(trainer: Any, model: Any) -> bool:
    """Return whether iterations now take as long as in the rest of a run: after `learning_starts` and a `WarmUp`."""
    waits = getattr(trainer.datamodule, "learning_starts", None) is not None and model.updates == 0
    warm_up = getattr(model, "warm_up", None)
    return not waits and not (warm_up is not None and bool(warm_up.active))


def latency(function: Callable[[], Any], seconds: float, device: torch.device) -> Latency:
    """Time repeated calls of a function with synchronization after each; the first one is not counted."""
    function()
    synchronize(device)
    calls: list[float] = []
    end = time.perf_counter() + seconds
    while not calls or time.perf_counter() < end:
        began = time.perf_counter()
        function()
        synchronize(device)
        calls.append(time.perf_counter() - began)
    return Latency(statistics.fmean(calls), statistics.median(calls), percentile(calls, 0.95), percentile(calls, 0.99))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least a fraction `share`, in (0, 1], of the values do not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def spread(values: Sequence[float]) -> float:
    """Return the range divided by the median; 0 for one value."""
    return (max(values) - min(values)) / statistics.median(values)


def synchronize(device: torch.device) -> None:
    """Wait for all work on a CUDA device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory_mib(device: torch.device) -> float:
    """Return the peak memory of this process, in MiB: of the device on CUDA, else of the host."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def device_name(device: torch.device) -> str:
    """Return the name of the device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()


def cpu_name() -> str:
    """Return the processor's model, if available."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def machine() -> dict[str, Any]:
    """Return the host's processor, available cores, load per core over the last minute, and system."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = round(os.getloadavg()[0] / cores, 2)
    return {"cpu": cpu_name(), "cores": cores, "load_per_core": load, "system": platform.platform(terse=True)}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that affect speed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
