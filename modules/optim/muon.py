"""Muon for the hidden matrices of a network and AdamW for everything else, as one optimizer (`MuonAdamW`)."""

import math
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.adamw import adamw

from modules.networks.heads.option import OptionHead
from modules.networks.heads.policy import PolicyHead, ValueHead
from modules.networks.heads.q_value import QHead
from modules.networks.heads.squashed_gaussian import SquashedGaussianHead
from modules.networks.recurrent import RecurrentTorso

HEADS = (OptionHead, PolicyHead, ValueHead, QHead, SquashedGaussianHead)
"""Modules whose linear layer gives a network's outputs."""

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the polynomial in `orthogonalized`, chosen by Jordan et al. 2024 for its slope at zero."""


class MuonAdamW(Optimizer):
    """Muon for matrices, AdamW for all other parameters, with one learning rate.

    Muon:  B = momentum B + (1 - momentum) g,  U = orthogonalized(g + momentum (B - g)),  W -= 0.2 sqrt(max(n, m)) lr U

    The factor gives the steps of a matrix `[n, m]` the root mean square of those of AdamW, so that its learning rates
    can be used. Alone, it takes every two-dimensional parameter for a hidden matrix; in a run only the weights that
    `hidden_matrices` names. It steps parameters in their shapes, never as one flat tensor, and reads no value back, so
    that a CUDA graph can capture it with the learning rate as a tensor, which `torch.optim.Muon` does not allow.

    Args:
        params: the parameters, without groups.
        lr: learning rate of both; in a run the algorithm sets it.
        momentum: of Muon, with Nesterov's step.
        ns_steps: iterations of `orthogonalized`.
        betas: decays of AdamW's averages.
        eps: of AdamW's denominator.
        weight_decay: decoupled, of both.

    Raises:
        ValueError: For parameter groups or a negative learning rate.

    Source: Jordan et al. 2024, kellerjordan.github.io/posts/muon; the factor is that of Liu et al. 2025,
        arXiv:2502.16982, section 2.2; AdamW is Loshchilov and Hutter 2019, arXiv:1711.05101.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float = 1e-3,
        momentum: float = 0.95,
        ns_steps: int = 5,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        parameters = [*params]
        if not all(isinstance(parameter, Tensor) for parameter in parameters):
            raise ValueError("MuonAdamW makes its own parameter groups: give it the parameters alone")
        if lr < 0:
            raise ValueError(f"MuonAdamW: lr is {lr}; it must not be negative")
        options = {"lr": lr, "momentum": momentum, "ns_steps": ns_steps, "betas": tuple(betas), "eps": eps}
        on_cuda = any(parameter.is_cuda for parameter in parameters)
        matrices = [parameter for parameter in parameters if parameter.dim() == 2]
        others = [parameter for parameter in parameters if parameter.dim() != 2]
        super().__init__(
            [{"params": matrices, "use_muon": True}, {"params": others, "use_muon": False}],
            {**options, "weight_decay": weight_decay, "capturable": on_cuda},
        )

    def restrict_muon_(self, hidden: Iterable[Tensor]) -> None:
        """Give AdamW the matrices that are not in `hidden`; for an optimizer without state."""
        names, (muon, others) = {id(each) for each in hidden}, self.param_groups
        others["params"] = [*others["params"], *(each for each in muon["params"] if id(each) not in names)]
        muon["params"] = [each for each in muon["params"] if id(each) in names]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; parameters without gradient do not change."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            learned = [parameter for parameter in group["params"] if parameter.grad is not None]
            (self._muon_step if group["use_muon"] else self._adamw_step)(learned, group)
        return loss

    def _muon_step(self, matrices: list[nn.Parameter], group: dict[str, Any]) -> None:
        for matrix in matrices:
            gradient, state = matrix.grad, self.state[matrix]
            assert gradient is not None
            if not state:
                state["momentum_buffer"] = torch.zeros_like(matrix)
            average = state["momentum_buffer"].lerp_(gradient, 1 - group["momentum"])
            update = orthogonalized(gradient.lerp(average, group["momentum"]), group["ns_steps"])
            if group["weight_decay"]:
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
            matrix.sub_(update * (group["lr"] * (0.2 * math.sqrt(max(matrix.shape)))))

    def _adamw_step(self, parameters: list[nn.Parameter], group: dict[str, Any]) -> None:
        for parameter in parameters:
            if not self.state[parameter]:
                place = parameter.device if group["capturable"] else torch.device("cpu")
                self.state[parameter] = {
                    "step": torch.zeros((), dtype=torch.float32, device=place),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
        states = [self.state[parameter] for parameter in parameters]
        averages, squares, steps = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step"))
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        adamw(
            [*parameters], gradients, averages, squares, [], steps,
            capturable=group["capturable"], amsgrad=False, beta1=group["betas"][0], beta2=group["betas"][1],
            lr=group["lr"], weight_decay=group["weight_decay"], eps=group["eps"], maximize=False,
        )  # fmt: skip


def orthogonalized(matrix: Tensor, steps: int) -> Tensor:
    """Return an approximation of U V^T, where U S V^T is the singular value decomposition of a matrix.

    X = X / |X|, then X = a X + (b A + c A^2) X with A = X X^T, `steps` times, in bfloat16.

    Args:
        matrix: `[n, m]`; the result has its shape and dtype.
        steps: iterations; 5 suffice.

    Source: the quintic Newton-Schulz iteration of Jordan et al. 2024, kellerjordan.github.io/posts/muon.
    """
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.bfloat16().mT if tall else matrix.bfloat16()
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(steps):
        product = x @ x.mT
        x = torch.addmm(x, torch.addmm(product, product, product, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrix.dtype)


def hidden_matrices(module: nn.Module) -> list[nn.Parameter]:
    """Return the weights of the linear layers of a module that are hidden, which Muon suits.

    Heads are not hidden, and neither are the stacked gates of recurrent networks, which are several matrices in one.
    Embeddings, convolutions and twin critics have no such layers. The first linear layer, which reads the observations,
    is among them; Jordan et al. 2024 give such input layers to AdamW.
    """
    outside: set[int] = set()
    for part in module.modules():
        parts: list[nn.Module] = [part] if isinstance(part, HEADS) else []
        if isinstance(part, RecurrentTorso):
            parts += [part.inputs] if part.recurrent_bias is None else [part.inputs, part.recurrent]
        outside.update(id(parameter) for each in parts for parameter in each.parameters())
    weights = [cast(nn.Parameter, part.weight) for part in module.modules() if isinstance(part, nn.Linear)]
    return [weight for weight in weights if id(weight) not in outside]


def restrict_muon_(optimizers: Iterable[Optimizer], module: nn.Module) -> None:
    """Let every `MuonAdamW` use Muon only for the hidden matrices of a module."""
    for optimizer in optimizers:
        if isinstance(optimizer, MuonAdamW):
            optimizer.restrict_muon_(hidden_matrices(module))
