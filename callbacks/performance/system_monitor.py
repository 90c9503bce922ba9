"""SystemMonitor: log processor load and memory of this process and of the processes that it started."""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lightning.pytorch import Callback, Trainer

PROC = Path("/proc")


class ProcessUsage(NamedTuple):
    """Processor time in seconds since the start of the processes, and resident memory in MiB."""

    cpu_s: float
    memory_mib: float


class SystemMonitor(Callback):
    """Log processor load and memory, every `trainer.log_every_n_steps` iterations.

    system/cpu_percent: load since the last log of this process and its worker processes; 100 is one core.
    system/memory_mib: resident memory of these processes; memory that they share counts once for each.
    system/num_processes: number of them.
    system/device_memory_mib, system/device_memory_peak_mib: on a GPU, memory that torch has reserved, and its peak.

    Rank 0 measures itself. Without /proc (not on Linux) only the memory of the device is logged. Utilisation,
    temperature and memory of the whole GPU are those of `callbacks.GPUMonitor`.

    Args:
        proc: path of the proc file system.
    """

    acts_per_iteration = False

    def __init__(self, proc: str = str(PROC)):
        self.proc = Path(proc)
        self._previous: tuple[float, float] | None = None

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Begin to count."""
        self._iteration, self._previous = trainer.global_step, None
        self.measure(trainer.strategy.root_device)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Log, if due."""
        every = trainer.log_every_n_steps
        due = trainer.global_step // every > self._iteration // every or trainer.is_last_batch
        if trainer.is_global_zero and due:
            self._iteration = trainer.global_step
            pl_module.log_values(self.measure(trainer.strategy.root_device))

    def measure(self, device: torch.device) -> dict[str, float]:
        """Return the values by tag; the processor load from the second call on."""
        values: dict[str, float] = {}
        if usages := process_usages(os.getpid(), self.proc):
            now, cpu_s = time.monotonic(), sum(usage.cpu_s for usage in usages)
            if self._previous is not None and now > self._previous[0]:
                values["system/cpu_percent"] = max(0.0, 100 * (cpu_s - self._previous[1]) / (now - self._previous[0]))
            self._previous = (now, cpu_s)
            values["system/memory_mib"] = sum(usage.memory_mib for usage in usages)
            values["system/num_processes"] = float(len(usages))
        if device.type == "cuda":
            values["system/device_memory_mib"] = torch.cuda.memory_reserved(device) / 2**20
            values["system/device_memory_peak_mib"] = torch.cuda.max_memory_reserved(device) / 2**20
        return values


def process_usages(pid: int, proc: Path = PROC) -> list[ProcessUsage]:
    """Return the usage of a process and of those that it started, also indirectly; [] without /proc."""
    usages: list[ProcessUsage] = []
    with suppress(OSError, ValueError, IndexError):  # a process may end meanwhile
        ticks = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        pages = int((proc / str(pid) / "statm").read_text().split()[1])
        cpu_s = (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")
        usages.append(ProcessUsage(cpu_s, pages * os.sysconf("SC_PAGE_SIZE") / 2**20))
        for children in (proc / str(pid) / "task").glob("*/children"):
            for child in children.read_text().split():
                usages += process_usages(int(child), proc)
    return usages
