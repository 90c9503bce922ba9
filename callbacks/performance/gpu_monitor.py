"""GPUMonitor: log GPU utilisation, memory, temperature and power, and warn of problems."""

import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.utilities import rank_zero_info

from callbacks.performance.nvml import NVML, GpuReading, NvmlUnavailable, Sampler
from datamodules.core.errors import ConfigurationError

LOW_UTILISATION = 50.0
"""Percent; a GPU below it is idle more than half of the time."""

HIGH_MEMORY = 0.95
"""Fraction of the memory in use above which the next allocation may fail."""

Sample = tuple[float, Mapping[int, GpuReading]]
"""Time of the monotonic clock in seconds, and the GPU samples of that time."""


class GPUMonitor(Callback):
    """Log the state of this run's GPUs on this host, and warn of underuse, memory and heat, once per run each.

    For the device with torch's index i, over the samples since the last log: gpu/i/utilisation (mean, percent),
    gpu/i/memory_mib (mean), gpu/i/memory_peak_mib (maximum), gpu/i/temperature_c (maximum), gpu/i/power_w (mean),
    gpu/i/clock_mhz (mean, of the multiprocessors); see `callbacks.performance.nvml.GpuReading`. They are logged every
    `trainer.log_every_n_steps` iterations, and not at all without a sample in between.

    A thread samples from the end of the first iteration (which compiles) to the end of the fit; it neither blocks
    training nor synchronizes with the device. Rank 0 samples all devices of its host. Without an NVIDIA GPU, or without
    the package nvidia-ml-py, one message says so.

    Args:
        interval_s: seconds between samples, above 0.
        warn_after_s: seconds of continuous utilisation below 50 percent before a warning.
        max_temperature: degrees Celsius above which it warns.
        sampler: sampler to use instead of NVML, for other accelerators.

    Raises: ConfigurationError for an invalid setting.
    """

    acts_per_iteration = False

    def __init__(
        self,
        interval_s: float = 1.0,
        warn_after_s: float = 30.0,
        max_temperature: float = 85.0,
        sampler: Sampler | None = None,
    ):
        if not interval_s > 0:
            raise ConfigurationError(
                f"GPUMonitor's interval_s is {interval_s}; give the seconds between samples, above 0."
            )
        self.interval_s, self.warn_after_s, self.max_temperature = interval_s, warn_after_s, max_temperature
        self.sampler = sampler
        self._sampler_in_use: Sampler | None = None
        self._thread: SamplerThread | None = None
        self._busy_at: dict[int, float] = {}
        self._warned: set[str] = set()
        self._has_reported = False

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Determine the devices of this run."""
        self._iteration = trainer.global_step
        self._busy_at, self._warned = {}, set()
        self._sampler_in_use = (self.sampler or self._open(trainer)) if trainer.is_global_zero else None

    def _open(self, trainer: Trainer) -> Sampler | None:
        device = trainer.strategy.root_device
        reason = f"this run is on {device}"
        if device.type == "cuda":
            try:
                return NVML({index: device_uuid(index) for index in trainer.device_ids})
            except NvmlUnavailable as error:
                reason = str(error)
        if not self._has_reported:
            rank_zero_info(f"No GPU is monitored: {reason}.")
        self._has_reported = True
        return None

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Start sampling after the first iteration; then log and warn, if due."""
        if self._sampler_in_use is None:
            return
        if self._thread is None:
            self._thread = SamplerThread(self._sampler_in_use, self.interval_s)
            self._thread.start()
        every = trainer.log_every_n_steps
        if trainer.global_step // every > self._iteration // every or trainer.is_last_batch:
            self._iteration = trainer.global_step
            samples = self._thread.pop_samples()
            if values := gpu_metrics(samples):
                pl_module.log_values(values)
            self.warn(samples)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """End the thread."""
        self._stop()

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """End the thread."""
        self._stop()

    def _stop(self) -> None:
        if self._thread is not None:
            self._thread.stop()
            self._thread = None

    def warn(self, samples: Iterable[Sample]) -> None:
        """Warn of problems in the samples since the last call that occur for the first time in this run."""
        for at, readings in samples:
            for index, reading in readings.items():
                if not reading.utilisation < LOW_UTILISATION:
                    self._busy_at[index] = at
                idle_s = at - self._busy_at.setdefault(index, at)
                for kind, problem in self._problems(reading, idle_s).items():
                    if kind not in self._warned:
                        self._warned.add(kind)
                        rank_zero_info(f"GPU {index} {problem}")

    def _problems(self, reading: GpuReading, idle_s: float) -> dict[str, str]:
        """Return the problems of a GPU that was underused for `idle_s` seconds, with remedies, by kind."""
        problems = {}
        if reading.utilisation < LOW_UTILISATION and idle_s >= self.warn_after_s:
            problems["utilisation"] = (
                f"has been under {LOW_UTILISATION:.0f} % busy for {idle_s:.0f} s ({reading.utilisation:.0f} % now): it"
                " waits for work. Raise --data.num_envs, or let `python -m app diagnose` name the bottleneck."
            )
        if reading.memory_mib > HIGH_MEMORY * reading.memory_total_mib:
            problems["memory"] = (
                f"uses {reading.memory_mib:,.0f} of its {reading.memory_total_mib:,.0f} MiB and may run out: lower"
                " --data.num_envs or the size of the network, or end other programs on it."
            )
        if reading.temperature_c > self.max_temperature:
            problems["temperature"] = (
                f"is at {reading.temperature_c:.0f} C, over {self.max_temperature:.0f} C, and may throttle: improve"
                " its cooling, or lower its power limit (`nvidia-smi --power-limit`)."
            )
        return problems


class SamplerThread(threading.Thread):
    """Thread that samples periodically, starting at once; samples are queued, so that no lock is held."""

    def __init__(self, sampler: Sampler, interval_s: float):
        super().__init__(name="GPUMonitor", daemon=True)
        self._sampler, self._interval_s = sampler, interval_s
        self._samples: deque[Sample] = deque()
        self._stopped = threading.Event()

    def run(self) -> None:
        """Sample, and wait for the next time or the end."""
        while not self._stopped.is_set():
            self._samples.append((time.monotonic(), self._sampler.sample()))
            self._stopped.wait(self._interval_s)

    def pop_samples(self) -> list[Sample]:
        """Return the samples since the last call, and remove them."""
        return [self._samples.popleft() for _ in range(len(self._samples))]

    def stop(self) -> None:
        """End the thread, without waiting for a blocked driver."""
        self._stopped.set()
        self.join(timeout=1.0)


def device_uuid(index: int) -> str:
    """Return NVML's identifier of torch's device `index`, independent of CUDA_VISIBLE_DEVICES and device order.

    Their numbers differ: CUDA counts visible devices only, and the fastest first; NVML counts all, by PCI bus.
    """
    return f"GPU-{torch.cuda.get_device_properties(index).uuid}"


def gpu_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    """Return the values to log by tag, without unavailable ones."""
    by_index: dict[int, list[GpuReading]] = {}
    for _, readings in samples:
        for index, reading in readings.items():
            by_index.setdefault(index, []).append(reading)
    values = {
        f"gpu/{index}/{name}": value
        for index, readings in by_index.items()
        for name, value in {
            "utilisation": fmean(reading.utilisation for reading in readings),
            "memory_mib": fmean(reading.memory_mib for reading in readings),
            "memory_peak_mib": max(reading.memory_mib for reading in readings),
            "temperature_c": max(reading.temperature_c for reading in readings),
            "power_w": fmean(reading.power_w for reading in readings),
            "clock_mhz": fmean(reading.clock_mhz for reading in readings),
        }.items()
    }
    return {tag: value for tag, value in values.items() if not math.isnan(value)}
