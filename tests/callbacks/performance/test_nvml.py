import math
import os
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest

from callbacks.performance.nvml import NVML, NvmlUnavailable

UUIDS_BY_TORCH = (
    "import torch; from callbacks.performance.gpu_monitor import device_uuid;"
    " print(*map(device_uuid, range(torch.cuda.device_count())))"
)


def uuids_by_nvml() -> list[str]:
    pynvml = pytest.importorskip("pynvml")
    pynvml.nvmlInit()
    return [
        pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index))
        for index in range(pynvml.nvmlDeviceGetCount())
    ]


def test_without_the_package_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)

    with pytest.raises(NvmlUnavailable, match="pip install nvidia-ml-py"):
        NVML()


def test_a_machine_without_the_driver_is_told_so() -> None:
    pynvml = pytest.importorskip("pynvml")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        with pytest.raises(NvmlUnavailable, match=str(error)):
            NVML()
    else:
        pytest.skip("this machine has the driver")


class FakeNVML(ModuleType):
    """Stands in for the library: one GPU, in the units of NVML's documentation, whose clock is not told."""

    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM = 0, 1
    NVMLError = RuntimeError

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"handle {index}"

    def nvmlDeviceGetName(self, handle: str) -> str:
        return f"name of {handle}"

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(gpu=87, memory=12)

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(used=3 * 2**30, total=80 * 2**30, free=77 * 2**30)

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return 61 if sensor == self.NVML_TEMPERATURE_GPU else -1

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return 345_678  # milliwatts

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:
        raise self.NVMLError("Not Supported")


def test_readings_are_in_the_units_that_they_are_named_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNVML("pynvml"))
    nvml = NVML()

    reading = nvml.sample()[0]

    assert nvml.names == {0: "name of handle 0"} and math.isnan(reading.clock_mhz)
    assert reading[:5] == (87.0, 3072.0, 81920.0, 61.0, 345.678)


@pytest.mark.gpu
def test_every_gpu_of_the_machine_is_read() -> None:
    uuids = uuids_by_nvml()
    nvml = NVML()

    readings = nvml.sample()

    assert list(readings) == list(nvml.names) == list(range(len(uuids)))
    assert all(0 < reading.memory_mib < reading.memory_total_mib for reading in readings.values())


@pytest.mark.gpu
@pytest.mark.parametrize("visible", ["number", "uuid"])
def test_the_devices_torch_sees_keep_their_names_when_some_are_hidden(visible: str) -> None:
    last = len(uuids_by_nvml()) - 1
    hidden = {"CUDA_VISIBLE_DEVICES": str(last) if visible == "number" else uuids_by_nvml()[last]}
    environ = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", **hidden}

    seen = subprocess.check_output([sys.executable, "-c", UUIDS_BY_TORCH], env=environ, text=True).split()

    assert seen == [uuids_by_nvml()[last]]
    assert list(NVML({0: seen[0]}).sample()) == [0]
