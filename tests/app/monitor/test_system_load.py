import math
from pathlib import Path

from app.monitor.system_load import MachineLoad, gpu_line
from callbacks.performance.nvml import GpuReading

MEMORY = "MemTotal: 8388608 kB\nMemFree: 1048576 kB\nMemAvailable: 6291456 kB\nHugePages_Total: 0\n"


def kernel(folder: Path, busy: int, idle: int) -> Path:
    """A folder like /proc."""
    (folder / "stat").write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 1 1 1\n")
    (folder / "loadavg").write_text("1.25 1.00 0.50 2/300 4242\n")
    (folder / "meminfo").write_text(MEMORY)
    return folder


def test_processors_are_measured_between_two_looks(tmp_path: Path) -> None:
    load = MachineLoad(kernel(tmp_path, busy=100, idle=900))
    first = load.lines()[0]
    kernel(tmp_path, busy=175, idle=925)

    second = load.lines()[0]

    assert first.startswith("CPU load 1.25 on ") and first.endswith("memory 2.0 of 8.0 GiB")
    assert second.startswith("CPU 75% busy (load 1.25 on ")


def test_where_the_kernel_tells_nothing_nothing_is_said(tmp_path: Path) -> None:
    assert [line for line in MachineLoad(tmp_path).lines() if not line.startswith("GPU")] == []


def test_a_gpu_is_described_without_what_it_does_not_tell() -> None:
    line = gpu_line(1, "Large GPU", GpuReading(97.0, 2048.0, 81_920.0, 61.0, math.nan, 1980.0))

    assert line == "GPU 1 Large GPU, 97 % busy, memory 2.0 of 80.0 GiB, 61 C, 1980 MHz"
