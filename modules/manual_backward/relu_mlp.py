"""Plain ReLU networks with their gradients written out, for updates that need no autograd on a CPU.

Autograd costs the graph, and tensors that are read once; a small network feels both. What soft actor-critic and deep
Q-learning add to this stands beside it; PPO, whose networks may be of tanh too, shares only the conditions.
"""

from collections.abc import Callable

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from modules.networks.base import has_hooks
from modules.networks.heads.q_value import QHead, QNetwork
from modules.networks.heads.squashed_gaussian import SquashedGaussianHead
from modules.networks.heads.twin_critic import TwinLinear, TwinMLP
from modules.networks.mlp import MLP
from modules.optim.flat_parameters import FlatParameters
from modules.optim.optimizer_group import Optimizers

relu_backward = torch.ops.aten.threshold_backward.grad_input

PLAIN = (nn.Flatten, nn.Linear, TwinLinear, nn.ReLU)
"""The layers that `Layers` stands for."""

CONTAINERS = (nn.Sequential, MLP, QHead, QNetwork, SquashedGaussianHead, TwinMLP)
"""The modules around them whose `forward` is known."""


class Layers:
    """A ReLU network, or two side by side as one batched product.

    Args:
        parameters: weight `[in, out]` or `[2, in, out]` and bias of every layer, in turn.
        gradients: where those of the parameters are written, in the same order; None for layers that do not learn.
    """

    def __init__(self, parameters: list[Tensor], gradients: list[Tensor] | None = None):
        self.weights, self.biases = parameters[::2], parameters[1::2]
        self.gradients = gradients
        alone = parameters[0].dim() == 2
        self.affine: Callable[..., Tensor] = torch.addmm if alone else torch.baddbmm
        self.product: Callable[..., Tensor] = torch.mm if alone else torch.bmm

    def __call__(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The outputs, and what every layer saw."""
        seen: list[Tensor] = []
        for weight, bias in zip(self.weights, self.biases, strict=True):
            seen.append(x.relu_() if seen else x)
            x = self.affine(bias, seen[-1], weight)
        return x, seen

    def learn_(self, seen: list[Tensor], by_output: Tensor) -> None:
        """Write the gradients of all parameters."""
        assert self.gradients is not None
        for layer in reversed(range(len(seen))):
            self.product(seen[layer].mT, by_output, out=self.gradients[2 * layer])
            torch.sum(by_output, -2, keepdim=True, out=self.gradients[2 * layer + 1])
            by_output = self.through(layer, seen, by_output) if layer else by_output

    def by_input(self, seen: list[Tensor], by_output: Tensor) -> Tensor:
        """The gradient of what the first layer saw."""
        for layer in reversed(range(1, len(seen))):
            by_output = self.through(layer, seen, by_output)
        return self.product(by_output, self.weights[0].mT)

    def through(self, layer: int, seen: list[Tensor], by_output: Tensor) -> Tensor:
        """The gradient before the activation under a layer; a product with one column needs no matrix product."""
        weight = self.weights[layer].mT
        below = by_output * weight if by_output.shape[-1] == 1 else self.product(by_output, weight)
        return relu_backward(below, seen[layer], 0, grad_input=below)


def layers_of(flat: FlatParameters) -> Layers:
    """The layers of a network whose parameters lie flat, which write their gradients there."""
    return Layers(*([as_rows(each.detach()) for each in part] for part in (flat.parameters, flat.views)))


def as_features(obs: Tensor) -> Tensor:
    """Observations as the first layer takes them; integers are cast, as networks do it."""
    return obs if obs.dim() == 2 and obs.dtype == torch.float32 else obs.flatten(1).float()


def as_rows(parameter: Tensor) -> Tensor:
    """A weight of `nn.Linear` as `[in, out]`, a bias as `[1, out]`."""
    return parameter.t() if parameter.dim() == 2 else parameter.unsqueeze(0)


def plain(network: nn.Module) -> bool:
    """Tell whether a network is a ReLU network with biases and neither it nor any submodule has a hook or a buffer."""
    layers = [layer for layer in network.modules() if not list(layer.children())]
    known = all(type(layer) in PLAIN and getattr(layer, "bias", True) is not None for layer in layers)
    known = known and all(type(part) in CONTAINERS for part in network.modules() if part not in layers)
    return known and not any(map(has_hooks, network.modules())) and not list(network.buffers())


def learns(network: nn.Module) -> bool:
    """Whether nothing of it is frozen."""
    return all(parameter.requires_grad for parameter in network.parameters())


def steps_plainly(optimizers: Optimizers, model: LightningModule) -> bool:
    """Whether they step flat tensors of float32 on a CPU."""
    flat = len(optimizers.flat) == len(optimizers.each)
    return flat and str(model.trainer.precision) == "32-true" and model.device.type == "cpu"
