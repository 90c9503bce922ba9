"""Read GPU status through NVIDIA's management library; without torch and Lightning, for the terminal monitor."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

MIB = 2**20


class GpuReading(NamedTuple):
    """Sample of one GPU; NaN for unavailable values.

    utilisation is the percentage of the driver's sampling period (1/6 s to 1 s) in which any kernel ran: it shows
    whether the GPU waits, not how well a kernel fills it. Memory is that of all programs on the GPU.
    """

    utilisation: float
    memory_mib: float
    memory_total_mib: float
    temperature_c: float
    power_w: float
    clock_mhz: float


class Sampler(Protocol):
    """Protocol of a source of GPU samples."""

    def sample(self) -> Mapping[int, GpuReading]:
        """Sample every GPU, by index. Called from a separate thread, so it may block."""
        ...


class NvmlUnavailable(RuntimeError):
    """Error that no GPU can be sampled; the message gives the reason."""


class NVML:
    """Sampler of NVIDIA GPUs, through the optional package nvidia-ml-py. It does not wait for kernels.

    Args:
        uuids: GPUs to sample, as `GPU-...`, by their index in the samples. None: all of this machine, in the order of
            NVML, which ignores CUDA_VISIBLE_DEVICES.

    Attributes:
        names: model name of each GPU, by index.

    Raises:
        NvmlUnavailable: if the package, the driver or one of the GPUs is missing.
    """

    def __init__(self, uuids: Mapping[int, str] | None = None):
        try:
            import pynvml
        except ImportError:
            raise NvmlUnavailable("the package nvidia-ml-py is not installed (pip install nvidia-ml-py)") from None
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            if uuids is None:
                count = pynvml.nvmlDeviceGetCount()
                self._handles = {index: pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)}
            else:
                self._handles = {index: pynvml.nvmlDeviceGetHandleByUUID(uuid) for index, uuid in uuids.items()}
            self.names = {index: str(pynvml.nvmlDeviceGetName(handle)) for index, handle in self._handles.items()}
        except pynvml.NVMLError as error:
            raise NvmlUnavailable(f"NVML says `{error}`") from None

    def sample(self) -> dict[int, GpuReading]:
        """Sample every GPU, by index."""
        return {index: self._read(handle) for index, handle in self._handles.items()}

    def _read(self, handle: Any) -> GpuReading:
        nvml = self._nvml
        return GpuReading(
            utilisation=self._query(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
            memory_mib=self._query(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used / MIB),
            memory_total_mib=self._query(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total / MIB),
            temperature_c=self._query(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            power_w=self._query(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            clock_mhz=self._query(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
        )

    def _query(self, function: Callable[[], float]) -> float:
        """Return the value of a query, NaN if this GPU does not support it (such as a laptop's power)."""
        try:
            return float(function())
        except self._nvml.NVMLError:
            return math.nan
