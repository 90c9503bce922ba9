"""Parameters in one flat tensor: averaging, clipping and stepping cost as much as for a single parameter."""

import math
import sys
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adadelta, Adam, AdamW, NAdam, Optimizer, RAdam, RMSprop

ELEMENTWISE = (Adadelta, Adam, AdamW, NAdam, RAdam, RMSprop, SGD)
"""Optimizers (these exact classes) with elementwise updates, so that the layout changes only the speed."""

ALIGNMENT = 16
"""Every parameter begins at a multiple of this number of elements, for fast matrix products."""

MAX_CHUNKS, CHUNK = 32, 1_024
"""A GPU's fused optimizer gives up to 65,536 elements of a tensor to one block of threads. The flat tensor is therefore
split into at most MAX_CHUNKS pieces, the limit of one launch, each a multiple of CHUNK elements.
"""


class FlatParameters:
    """Parameters as views of one flat tensor `flat`, and `grad_views` of its gradient in their shapes.

    Modules keep their parameters: the same objects, names and values at another address. The padding to `ALIGNMENT` is
    zero and stays zero.

    Args:
        parameters: of one dtype, on one device.

    Source: the layout of gradients in PyTorch's DistributedDataParallel, Li et al. 2020, arXiv:2006.15704, section
        3.2.
    """

    def __init__(self, parameters: list[nn.Parameter]):
        self.parameters = parameters
        sizes = [-(-parameter.numel() // ALIGNMENT) * ALIGNMENT for parameter in parameters]
        self.flat = nn.Parameter(torch.zeros(sum(sizes), dtype=parameters[0].dtype, device=parameters[0].device))
        self.values, self.gradient = self.flat.detach(), torch.zeros_like(self.flat)
        self.flat.grad = self.gradient
        self.grad_views = []
        for parameter, piece, gradient in zip(
            parameters, self.flat.data.split(sizes), self.gradient.split(sizes), strict=True
        ):
            self.grad_views.append(gradient[: parameter.numel()].view_as(parameter))
            parameter.data = piece[: parameter.numel()].view_as(parameter).copy_(parameter.data)

    def copy_grads_(self, gradients: Sequence[Tensor | None]) -> None:
        """Copy the gradient of every parameter; zero where the loss does not depend on it."""
        known = zip(gradients, self.grad_views, strict=True)
        torch._foreach_copy_(
            self.grad_views, [torch.zeros_like(view) if each is None else each for each, view in known]
        )

    def clip_(self, max_norm: float) -> Tensor:
        """Scale the gradient down to a norm of at most `max_norm`, unless infinite; return the norm before clipping.

        On a CPU the scaling is skipped if not needed; elsewhere the check would synchronise with the device.
        """
        norm = torch.linalg.vector_norm(self.gradient)
        if max_norm == math.inf:
            return norm
        if norm.device.type != "cpu":
            self.gradient.div_((norm / max_norm).clamp(min=1))
        elif not (excess := norm.item() / max_norm) <= 1:  # also true for NaN
            self.gradient.div_(excess)
        return norm

    def step_(self, optimizer: Optimizer) -> None:
        """Take an optimizer step; for fused Adam call its kernel directly, which takes a third of the step's time.

        Denormal numbers are flushed to zero during the step, where this thread computes on a CPU. The averaged gradient
        of a weight without gradient, as at a dead unit, decays into denormals and stays there: the smallest times 0.9
        rounds to itself. A processor is a hundred times slower with denormals.
        """
        before = sys.float_info.min / 2 == 0.0
        torch.set_flush_denormal(True)
        try:
            self._step_(optimizer)
        finally:
            torch.set_flush_denormal(before)

    def _step_(self, optimizer: Optimizer) -> None:
        options, state = optimizer.param_groups[0], optimizer.state.get(self.flat)
        kernel_alone = isinstance(optimizer, Adam) and options.get("fused") and not options["amsgrad"]
        if not (state and kernel_alone):
            optimizer.step()
            return
        state["step"].add_(1)
        whole, steps = self._pieces(self.values), state["step"]
        (torch._fused_adamw_ if options["decoupled_weight_decay"] else torch._fused_adam_)(
            whole, self._pieces(self.gradient), self._pieces(state["exp_avg"]), self._pieces(state["exp_avg_sq"]),
            [], [steps] * len(whole),
            lr=options["lr"], beta1=options["betas"][0], beta2=options["betas"][1], eps=options["eps"],
            weight_decay=options["weight_decay"], maximize=options["maximize"], amsgrad=False,
        )  # fmt: skip

    def _pieces(self, column: Tensor) -> list[Tensor]:
        """Split a tensor as long as the flat one into views that the device's kernel processes in parallel."""
        if self.flat.device.type == "cpu":
            return [column]
        return list(column.split(-(-len(column) // (MAX_CHUNKS * CHUNK)) * CHUNK))


def flatten_optimizer(optimizer: Optimizer) -> FlatParameters | None:
    """Lay out the parameters of an optimizer without state in one flat tensor, which it then steps instead.

    Returns: None, and everything unchanged, for an optimizer that is not elementwise or has several groups, or whose
        parameters differ in dtype or device.
    """
    parameters = optimizer.param_groups[0]["params"]
    kinds = {(parameter.dtype, parameter.device) for parameter in parameters}
    if type(optimizer) not in ELEMENTWISE or len(optimizer.param_groups) > 1 or len(kinds) > 1:
        return None
    flat = FlatParameters(parameters)
    optimizer.param_groups[0]["params"] = [flat.flat]
    return flat
