"""Parameters laid out in one tensor: averaging, clipping and stepping cost as much as for a single one."""

import math
import sys
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adadelta, Adam, AdamW, NAdam, Optimizer, RAdam, RMSprop

ELEMENTWISE = (Adadelta, Adam, AdamW, NAdam, RAdam, RMSprop, SGD)
"""Optimizers (these very classes) that treat every number by itself, so that the layout changes nothing but speed."""

ALIGNED = 16
"""Every parameter begins at a multiple of so many numbers, as fast matrix products want it."""

PIECES, PIECE = 32, 1_024
"""A GPU's fused optimizer gives a piece of up to 65,536 numbers to one block of threads: the whole is handed over in at
most so many pieces, as many as one launch takes, of a multiple of so many numbers."""


class FlatParameters:
    """Parameters that are views of `whole`, whose numbers are `values`, and `views` of its `gradient` in their shapes.

    Modules keep their parameters: the same objects, names and values at another address. What pads the parameters to
    `ALIGNED` is zero and stays so.

    Args:
        parameters: of one dtype, on one device.

    Source: the layout of gradients in PyTorch's DistributedDataParallel, Li et al. 2020, arXiv:2006.15704, section 3.2.
    """

    def __init__(self, parameters: list[nn.Parameter]):
        self.parameters = parameters
        sizes = [-(-parameter.numel() // ALIGNED) * ALIGNED for parameter in parameters]
        self.whole = nn.Parameter(torch.zeros(sum(sizes), dtype=parameters[0].dtype, device=parameters[0].device))
        self.values, self.gradient = self.whole.detach(), torch.zeros_like(self.whole)
        self.whole.grad = self.gradient
        self.views = []
        for parameter, piece, gradient in zip(
            parameters, self.whole.data.split(sizes), self.gradient.split(sizes), strict=True
        ):
            self.views.append(gradient[: parameter.numel()].view_as(parameter))
            parameter.data = piece[: parameter.numel()].view_as(parameter).copy_(parameter.data)

    def receive_(self, gradients: Sequence[Tensor | None]) -> None:
        """Write the gradient of every parameter; zero where a loss does not depend on it."""
        known = zip(gradients, self.views, strict=True)
        torch._foreach_copy_(self.views, [torch.zeros_like(view) if each is None else each for each, view in known])

    def clip_(self, max_norm: float) -> Tensor:
        """Scale the gradient down to a norm of at most `max_norm`, unless infinite; the norm that it had.

        A CPU looks whether there is anything to do, for which others would have to wait.
        """
        norm = torch.linalg.vector_norm(self.gradient)
        if max_norm == math.inf:
            return norm
        if norm.device.type != "cpu":
            self.gradient.div_((norm / max_norm).clamp(min=1))
        elif not (excess := norm.item() / max_norm) <= 1:  # nor where it is not a number
            self.gradient.div_(excess)
        return norm

    def step_(self, optimizer: Optimizer) -> None:
        """The optimizer's step; for fused Adam its kernel alone, which takes a third of the step's time.

        Numbers too small for full precision are zero meanwhile, where this thread computes on a CPU. The averaged
        gradient of a weight that no longer gets one, as at a dead unit, decays into such numbers and stays there for
        good: the smallest times 0.9 rounds to itself. A processor takes a hundred times as long for them.
        """
        before = sys.float_info.min / 2 == 0.0
        torch.set_flush_denormal(True)
        try:
            self._step_(optimizer)
        finally:
            torch.set_flush_denormal(before)

    def _step_(self, optimizer: Optimizer) -> None:
        options, state = optimizer.param_groups[0], optimizer.state.get(self.whole)
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
        """A column as long as the whole, in views that the device's kernel treats side by side."""
        if self.whole.device.type == "cpu":
            return [column]
        return list(column.split(-(-len(column) // (PIECES * PIECE)) * PIECE))


def flattened(optimizer: Optimizer) -> FlatParameters | None:
    """Lay out the parameters of an optimizer that has not stepped yet, and let it step the whole instead.

    Returns: None, and everything as it was, for an optimizer that is not elementwise or has several groups, or whose
        parameters differ in dtype or device.
    """
    parameters = optimizer.param_groups[0]["params"]
    kinds = {(parameter.dtype, parameter.device) for parameter in parameters}
    if type(optimizer) not in ELEMENTWISE or len(optimizer.param_groups) > 1 or len(kinds) > 1:
        return None
    flat = FlatParameters(parameters)
    optimizer.param_groups[0]["params"] = [flat.whole]
    return flat
