"""Load of this machine: processors and memory from /proc, GPUs from NVML; unavailable values are omitted."""

import math
import os
from contextlib import suppress
from pathlib import Path

from callbacks.performance.nvml import NVML, GpuReading, NvmlUnavailable
from datamodules.core.files.printable import counted

PROC = Path("/proc")
GIB = 2**20
"""Kibibytes per gibibyte; /proc counts in kibibytes."""


class MachineLoad:
    """Load of this machine, sampled on request.

    Args:
        proc: path of the proc file system.
    """

    def __init__(self, proc: Path = PROC):
        self.proc = proc
        self._ticks: tuple[int, int] | None = None
        self._nvml: NVML | None = None
        with suppress(NvmlUnavailable):
            self._nvml = NVML()

    def lines(self) -> list[str]:
        """Return one line for processors and memory, and one per GPU; processor load is that since the last call."""
        host = ", ".join(part for part in (self._processors(), self._memory()) if part)
        readings = self._nvml.sample() if self._nvml else {}
        names = self._nvml.names if self._nvml else {}
        return ([host] if host else []) + [gpu_line(index, names[index], readings[index]) for index in readings]

    def _processors(self) -> str:
        try:
            total = [int(ticks) for ticks in (self.proc / "stat").read_text().split("\n", 1)[0].split()[1:9]]
            load = (self.proc / "loadavg").read_text().split()[0]
        except (OSError, ValueError, IndexError):
            return ""
        before, self._ticks = self._ticks, (sum(total), total[3] + total[4])
        text = f"load {load} on {counted(os.cpu_count() or 1, 'core')}"
        if before is None or self._ticks[0] <= before[0]:
            return f"CPU {text}"
        idle = (self._ticks[1] - before[1]) / (self._ticks[0] - before[0])
        return f"CPU {1 - idle:.0%} busy ({text})"

    def _memory(self) -> str:
        try:
            rows = (row.split() for row in (self.proc / "meminfo").read_text().splitlines())
            kib = {row[0].rstrip(":"): int(row[1]) for row in rows}
            used, total = (kib["MemTotal"] - kib["MemAvailable"]) / GIB, kib["MemTotal"] / GIB
        except (OSError, ValueError, IndexError, KeyError):
            return ""
        return f"memory {used:.1f} of {total:.1f} GiB"


def gpu_line(index: int, name: str, reading: GpuReading) -> str:
    """Format one GPU's reading, without unavailable values."""
    parts = {
        f"{reading.utilisation:.0f} % busy": reading.utilisation,
        f"memory {reading.memory_mib / 1024:.1f} of {reading.memory_total_mib / 1024:.1f} GiB": reading.memory_mib,
        f"{reading.temperature_c:.0f} C": reading.temperature_c,
        f"{reading.power_w:.0f} W": reading.power_w,
        f"{reading.clock_mhz:.0f} MHz": reading.clock_mhz,
    }
    return ", ".join([f"GPU {index} {name}", *(text for text, value in parts.items() if not math.isnan(value))])
