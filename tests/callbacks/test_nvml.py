import os
import subprocess
import sys

import pytest

from callbacks.nvml import NVML, NoNVML

UUIDS_BY_TORCH = (
    "import torch; from callbacks.gpu import device_uuid; print(*map(device_uuid, range(torch.cuda.device_count())))"
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

    with pytest.raises(NoNVML, match="pip install nvidia-ml-py"):
        NVML()


def test_a_machine_without_the_driver_is_told_so() -> None:
    pynvml = pytest.importorskip("pynvml")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        with pytest.raises(NoNVML, match=str(error)):
            NVML()
    else:
        pytest.skip("this machine has the driver")


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
