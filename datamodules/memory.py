"""Memory: what a device has left, asked before much is taken."""

import os
from pathlib import Path

import torch
from lightning.pytorch.utilities import rank_zero_info

from datamodules.types import UsageError


def free_bytes(device: torch.device) -> int:
    """Memory that can still be had on a device, the host's where it is a CPU."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    info = Path("/proc/meminfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    available = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")]
    return available[0] if available else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def storage_device(storage: str, device: torch.device, needed: int, capacity: int) -> torch.device:
    """Where a replay of `needed` bytes lies: with the policy on `device`, or on the CPU.

    Args:
        storage: device | cpu | auto (the device while that leaves it a fifth of its free memory).
        capacity: steps it holds, for the message.

    Raises: UsageError if it has no room there, with the numbers.
    """
    mib = needed / 2**20
    if storage == "auto" and device.type != "cpu" and needed > 0.8 * free_bytes(device):
        rank_zero_info(f"The replay lies on the CPU: it needs {mib:,.0f} MiB, which {device} does not have to spare.")
        storage = "cpu"
    place = torch.device("cpu") if storage == "cpu" else device
    free = free_bytes(place)
    if needed > free:
        raise UsageError(
            f"The replay of data.capacity {capacity:,} needs {mib:,.0f} MiB, and {place} has {free / 2**20:,.0f} MiB"
            f" free: set data.capacity to at most {int(0.9 * capacity * free / needed):,}."
        )
    return place
