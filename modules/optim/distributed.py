"""What ranks agree on. Every function is the identity in a run of one process."""

import torch
from torch import Tensor, distributed, nn


def ranks() -> int:
    """Processes that train together."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def summed(x: Tensor) -> Tensor:
    """The sum of x over the ranks; x itself is left alone."""
    if ranks() == 1:
        return x
    total = x.clone()
    distributed.all_reduce(total)
    return total


def averaged(x: Tensor) -> Tensor:
    """The mean of x over the ranks."""
    return summed(x) / ranks()


def gathered(own: object) -> list[object]:
    """Every rank's object (tensors and plain types), in the order of the ranks."""
    if ranks() == 1:
        return [own]
    everyone: list[object] = [None] * ranks()
    distributed.all_gather_object(everyone, own)
    return everyone


def average_gradients_(parameters: list[nn.Parameter]) -> None:
    """Replace every gradient by its mean over the ranks, in one all-reduce."""
    if ranks() == 1:
        return
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    flat = averaged(torch.cat([gradient.flatten() for gradient in gradients]))
    for gradient, mean in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))
