"""Collective operations over ranks. Every function is the identity in a run of one process."""

from functools import cache

import torch
from torch import Tensor, distributed, nn


def world_size() -> int:
    """Return the number of processes that train together."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def all_reduce_sum(x: Tensor) -> Tensor:
    """Return the sum of x over the ranks; x itself does not change."""
    if world_size() == 1:
        return x
    total = x.clone()
    distributed.all_reduce(total)
    return total


def all_reduce_mean(x: Tensor) -> Tensor:
    """Return the mean of x over the ranks."""
    return all_reduce_sum(x) / world_size()


def all_reduce_max(x: Tensor) -> Tensor:
    """Return the largest x of the ranks, element by element; x itself does not change."""
    if world_size() == 1:
        return x
    largest = x.clone()
    distributed.all_reduce(largest, distributed.ReduceOp.MAX)
    return largest


def all_gather_rows(x: Tensor) -> Tensor:
    """Return the rows `[M, ...]` of all ranks, in their order, `[ranks M, ...]`; M is the same on every rank."""
    if world_size() == 1:
        return x
    rows = [torch.empty_like(x) for _ in range(world_size())]
    distributed.all_gather(rows, x.contiguous())
    return torch.cat(rows)


def all_gather_object(value: object) -> list[object]:
    """Return every rank's object (tensors and plain types), in the order of the ranks."""
    if world_size() == 1:
        return [value]
    objects: list[object] = [None] * world_size()
    distributed.all_gather_object(objects, value)
    return objects


def host_all_reduce_sum(number: int) -> int:
    """Return the sum of a number over the ranks, exchanged between the hosts, so that no rank waits for its device."""
    if world_size() == 1:
        return number
    total = torch.tensor(number)
    distributed.all_reduce(total, group=host_group())
    return int(total)


def host_group() -> distributed.ProcessGroup:
    """Return the gloo group of all ranks, whose messages do not wait for a device; every rank makes the first call."""
    return _host_group(distributed.group.WORLD)


@cache
def _host_group(world: distributed.ProcessGroup) -> distributed.ProcessGroup:
    """Create the group once for each initialisation of the process group."""
    return distributed.new_group(backend="gloo")


def average_gradients_(parameters: list[nn.Parameter]) -> None:
    """Replace every gradient by its mean over the ranks, in one all-reduce."""
    if world_size() == 1:
        return
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if len(gradients) == 1 and gradients[0].is_contiguous():
        distributed.all_reduce(gradients[0])
        gradients[0].div_(world_size())
        return
    flat = all_reduce_mean(torch.cat([gradient.flatten() for gradient in gradients]))
    for gradient, mean in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))
