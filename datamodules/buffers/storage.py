"""Memory: what a device or a disk has left, asked before much is taken, and storage on either."""

import math
import os
import shutil
import tempfile
from pathlib import Path

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from datamodules.core.errors import UsageError


def free_bytes(device: torch.device) -> int:
    """Memory that can still be had on a device, the host's where it is a CPU."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    info = Path("/proc/meminfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    available = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")]
    return available[0] if available else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def require_use(storage: str, folder: str | None) -> None:
    """Raises: UsageError for a folder that nothing is put into, because the replay does not lie on the disk."""
    if folder is not None and storage != "disk":
        raise UsageError(
            f"data.storage_folder is {folder}, but data.storage {storage} puts nothing there: add --data.storage disk."
        )


def storage_device(
    storage: str, device: torch.device, needed: int, capacity: int, folder: Path | None = None
) -> torch.device:
    """Where a replay of `needed` bytes lies: with the policy on `device`, or on the CPU.

    Args:
        storage: device | cpu | auto (the device while that leaves it a fifth of its free memory).
        capacity: steps it holds, for the message.
        folder: of its files where it lies on the disk, which then must have the room, instead of the memory; made if
            need be.

    Raises: UsageError if it has no room there, with the numbers, or cannot write there.
    """
    mib = needed / 2**20
    if storage == "auto" and device.type != "cpu" and needed > 0.8 * free_bytes(device):
        rank_zero_info(f"The replay lies on the CPU: it needs {mib:,.0f} MiB, which {device} does not have to spare.")
        storage = "cpu"
    if folder is not None:
        _check_disk(folder, needed, capacity)
        return torch.device("cpu")
    place = torch.device("cpu") if storage == "cpu" else device
    free = free_bytes(place)
    if needed > free:
        raise UsageError(
            f"The replay of data.capacity {capacity:,} needs {mib:,.0f} MiB, and {place} has {free / 2**20:,.0f} MiB"
            f" free: set data.capacity to at most {int(0.9 * capacity * free / needed):,}."
        )
    return place


def zeros_on_disk(shape: tuple[int, ...], dtype: torch.dtype, folder: Path) -> Tensor:
    """Map zeros in a file into memory, where the system keeps no more of it than there is room for.

    The file has lost its name when this returns, on Linux before it takes any space: its space, all of which is taken
    at once, is free again when the tensor or the process ends, in whatever way.

    Raises: OSError if the disk has too little room.
    """
    count = math.prod(shape) * dtype.itemsize
    descriptor, name = tempfile.mkstemp(dir=folder, prefix="replay-")
    nameless = Path(f"/proc/self/fd/{descriptor}")
    try:
        if nameless.exists():
            os.unlink(name)
        if hasattr(os, "posix_fallocate"):  # macOS has none: there a full disk ends the run later
            os.posix_fallocate(descriptor, 0, count)
        path = str(nameless) if nameless.exists() else name
        return torch.from_file(path, shared=True, size=count, dtype=torch.uint8).view(dtype).view(shape)
    except OSError as error:
        error.filename = str(folder)
        raise
    finally:
        os.close(descriptor)
        Path(name).unlink(missing_ok=True)


def _check_disk(folder: Path, needed: int, capacity: int) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(
            f"The replay cannot write into {folder} ({error.strerror}): set data.storage_folder to another folder."
        ) from None
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UsageError(
            f"The replay of data.capacity {capacity:,} needs {needed / 2**20:,.0f} MiB, and the disk of {folder} has"
            f" {free / 2**20:,.0f} MiB free: set data.capacity to at most {int(0.9 * capacity * free / needed):,}, or"
            " data.storage_folder to a folder on another disk."
        )
