"""Check free memory and disk space, choose the device of a replay buffer, and allocate memory-mapped tensors."""

import math
import os
import shutil
import tempfile
from pathlib import Path

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from datamodules.core.errors import ConfigurationError


def free_bytes(device: torch.device) -> int:
    """Return the free memory of a device; that of the host for a CPU."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    info = Path("/proc/meminfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    available = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")]
    return available[0] if available else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_storage_folder(storage: str, folder: str | None) -> None:
    """Check that a storage folder is only given if the replay buffer is stored on disk.

    Raises: ConfigurationError if it is given otherwise.
    """
    if folder is not None and storage != "disk":
        raise ConfigurationError(
            f"data.storage_folder is {folder}, but data.storage {storage} does not use it: add --data.storage disk."
        )


def choose_storage_device(
    storage: str, device: torch.device, needed: int, capacity: int, folder: Path | None = None
) -> torch.device:
    """Choose the device of a replay buffer of `needed` bytes: the policy's `device` or the CPU.

    Args:
        storage: device | cpu | disk | auto (the device if that leaves a fifth of its free memory).
        capacity: steps in the buffer, for the message.
        folder: folder for storage on disk, which then needs the free space instead of the memory; created if missing.

    Raises: ConfigurationError if there is not enough space, with the numbers, or the folder is not writable.
    """
    mib = needed / 2**20
    if storage == "auto" and device.type != "cpu" and needed > 0.8 * free_bytes(device):
        rank_zero_info(f"The replay buffer is on the CPU: it needs {mib:,.0f} MiB, more than {device} has free.")
        storage = "cpu"
    if folder is not None:
        _check_disk(folder, needed, capacity)
        return torch.device("cpu")
    place = torch.device("cpu") if storage == "cpu" else device
    free = free_bytes(place)
    if needed > free:
        raise ConfigurationError(
            f"The replay of data.capacity {capacity:,} needs {mib:,.0f} MiB, and {place} has {free / 2**20:,.0f} MiB"
            f" free: set data.capacity to at most {int(0.9 * capacity * free / needed):,}."
        )
    return place


def memmap_zeros(shape: tuple[int, ...], dtype: torch.dtype, folder: Path) -> Tensor:
    """Map a zero-filled file into memory; the operating system evicts its pages when memory is short.

    The file is unlinked before this returns (on Linux before it takes space). Its space is allocated at once and freed
    when the tensor is deleted or the process ends, however it ends.

    Raises: OSError if there is not enough disk space.
    """
    count = math.prod(shape) * dtype.itemsize
    descriptor, name = tempfile.mkstemp(dir=folder, prefix="replay-")
    nameless = Path(f"/proc/self/fd/{descriptor}")
    try:
        if nameless.exists():
            os.unlink(name)
        if hasattr(os, "posix_fallocate"):  # absent on macOS, where a full disk ends the run later
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
        raise ConfigurationError(
            f"The replay buffer cannot be written to {folder} ({error.strerror}): set data.storage_folder to"
            " another folder."
        ) from None
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ConfigurationError(
            f"The replay of data.capacity {capacity:,} needs {needed / 2**20:,.0f} MiB, and the disk of {folder} has"
            f" {free / 2**20:,.0f} MiB free: set data.capacity to at most {int(0.9 * capacity * free / needed):,}, or"
            " data.storage_folder to a folder on another disk."
        )
