"""Polyak averaging of target networks."""

import torch
from torch import Tensor, nn


@torch.no_grad()
def polyak_update_(target: nn.Module, source: nn.Module, tau: float) -> None:
    """Update a target network in place by Polyak averaging: parameters and buffers.

    target <- (1 - tau) target + tau source

    Parameters and floating-point buffers, such as BatchNorm's running means and variances, are averaged. Integer and
    boolean buffers, such as `num_batches_tracked`, and non-finite entries of a buffer are copied. If tau is 1,
    everything is copied.

    Args:
        target, source: networks of the same architecture.
        tau: in (0, 1].

    Source: Lillicrap et al. 2016, arXiv:1509.02971, section 3. Buffers affect a network's output as parameters do;
    averaged with the same tau, the statistics are as old as the weights.
    """
    (targets, target_buffers), (sources, source_buffers) = _tensors_of(target), _tensors_of(source)
    torch._foreach_lerp_(targets, sources, tau)
    for old, new in zip(target_buffers, source_buffers, strict=True):
        if tau == 1.0 or not (new.is_floating_point() or new.is_complex()):
            old.copy_(new)
        else:
            finite = old.isfinite() & new.isfinite()
            old.copy_(torch.where(finite, torch.lerp(old, new.to(old.dtype), tau), new))


def _tensors_of(network: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """List the parameters and the buffers, each once, in one slow traversal of the modules."""
    parameters: dict[Tensor, None] = {}
    buffers: dict[Tensor, None] = {}
    for part in network.modules():
        parameters |= dict.fromkeys(value for value in part._parameters.values() if value is not None)
        buffers |= dict.fromkeys(value for value in part._buffers.values() if value is not None)
    return [*parameters], [*buffers]
