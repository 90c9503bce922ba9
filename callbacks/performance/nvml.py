"""What NVIDIA's management library tells about GPUs; without Torch or Lightning, so that a terminal view can use it."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

MIB = 2**20


class Reading(NamedTuple):
    """One look at one GPU; NaN for what it does not tell.

    utilisation is the share of the last moment (1/6 s to 1 s, the driver's choice) in which any kernel ran, in percent:
    it says whether the GPU waits, not how well a kernel fills it. Memory is that of all programs on the GPU.
    """

    utilisation: float
    memory_mib: float
    memory_total_mib: float
    temperature_c: float
    power_w: float
    clock_mhz: float


class Sampler(Protocol):
    """Whatever can look at some GPUs."""

    def sample(self) -> Mapping[int, Reading]:
        """One look at every GPU, by index. Called from a thread of its own, so it may take its time."""
        ...


class NoNVML(RuntimeError):
    """No GPU can be looked at; says why."""


class NVML:
    """A Sampler of NVIDIA GPUs, through the optional package nvidia-ml-py. It waits for no kernel.

    Args:
        uuids: the GPUs to look at, as `GPU-...`, by the index their readings shall have. None: all of this machine,
            in the order of NVML, which knows nothing of CUDA_VISIBLE_DEVICES.

    Attributes:
        names: what each GPU is, by index.

    Raises:
        NoNVML: if the package, the driver or one of the GPUs is missing.
    """

    def __init__(self, uuids: Mapping[int, str] | None = None):
        try:
            import pynvml
        except ImportError:
            raise NoNVML("the package nvidia-ml-py is not installed (pip install nvidia-ml-py)") from None
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
            raise NoNVML(f"NVML says `{error}`") from None

    def sample(self) -> dict[int, Reading]:
        """One look at every GPU, by index."""
        return {index: self._read(handle) for index, handle in self._handles.items()}

    def _read(self, handle: Any) -> Reading:
        nvml = self._nvml
        return Reading(
            utilisation=self._told(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
            memory_mib=self._told(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used / MIB),
            memory_total_mib=self._told(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total / MIB),
            temperature_c=self._told(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            power_w=self._told(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            clock_mhz=self._told(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
        )

    def _told(self, question: Callable[[], float]) -> float:
        """The answer, NaN when this GPU has none (a laptop's power, a slice's utilisation)."""
        try:
            return float(question())
        except self._nvml.NVMLError:
            return math.nan
