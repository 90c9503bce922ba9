"""DeviceConstants: constant tensors of an on-device environment, copied to each device once."""

import torch
from torch import Tensor


class DeviceConstants:
    """Tensors that are copied to a device once, so that their addresses are fixed for a CUDA graph."""

    def __init__(self, *tensors: Tensor):
        self._copies = {torch.device("cpu"): tensors}

    def on(self, device: torch.device) -> tuple[Tensor, ...]:
        """Return the tensors on a device."""
        if device not in self._copies:
            self._copies[device] = tuple(tensor.to(device) for tensor in self._copies[torch.device("cpu")])
        return self._copies[device]

    def fill_(self, value: float) -> None:
        """Fill the tensors on every device with a value, in place."""
        for tensor in (each for copies in self._copies.values() for each in copies):
            tensor.fill_(value)
