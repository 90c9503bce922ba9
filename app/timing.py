"""What a run really does and what it costs: shared by everything that measures or says so."""

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

from callbacks.performance.throughput import joints

PACKAGES = ("torch", "lightning", "gymnasium", "numpy", "stable-baselines3", "skrl")
"""Whose versions belong to a measurement."""


class Bare(NamedTuple):
    """What iterations cost without the Trainer: how many, in how many seconds, and each joint's part of the seconds."""

    iterations: int
    seconds: float
    joints: dict[str, float]


class Latency(NamedTuple):
    """Seconds of one call: mean, median, and what 95 and 99 of 100 calls stay under."""

    mean: float
    median: float
    p95: float
    p99: float


def bare_loop(trainer: Any, model: Any, seconds: float) -> Bare:
    """Train for a while without the Trainer, with the very objects of its run: collect, prepare, update.

    Nothing is counted or logged. Call it between two iterations of a fit.
    """
    device, running = trainer.strategy.root_device, joints(trainer, model)
    synchronize(device)
    for joint in running.values():
        joint.seconds()
    began, iterations = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for _ in range(trainer.log_every_n_steps):
            with trainer.precision_plugin.train_step_context():
                model.iterate(trainer.datamodule.collect())
        synchronize(device)
        iterations += trainer.log_every_n_steps
    elapsed = time.perf_counter() - began
    return Bare(iterations, elapsed, {name: joint.seconds() for name, joint in running.items()})


def latency(function: Callable[[], Any], seconds: float, device: torch.device) -> Latency:
    """Call a function again and again for a while; every call is waited for. The first one is not counted."""
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
    """The smallest of the values that at least `share` of them, in (0, 1], do not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def spread(values: Sequence[float]) -> float:
    """Highest less lowest, as a share of the median; 0 for one value."""
    return (max(values) - min(values)) / statistics.median(values)


def synchronize(device: torch.device) -> None:
    """Wait for what a CUDA device still has to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory_mib(device: torch.device) -> float:
    """The most memory this process ever held, in MiB: of the device on CUDA, else of the host."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def device_name(device: torch.device) -> str:
    """What the device calls itself."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()


def cpu_name() -> str:
    """The processor's model, where the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def machine() -> dict[str, Any]:
    """The host: processor, cores this process may use, load per core over the last minute, system."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = round(os.getloadavg()[0] / cores, 2)
    return {"cpu": cpu_name(), "cores": cores, "load_per_core": load, "system": platform.platform(terse=True)}


def versions() -> dict[str, str]:
    """Of Python and of the packages that decide about speed, those that are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
