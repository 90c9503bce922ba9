"""ReLU networks with hand-written gradients, for updates without autograd on a CPU.

Autograd's graph and temporary tensors are a notable cost for a small network. `sac` and `dqn` build on this file; PPO,
whose networks may have tanh units, shares only the conditions.
"""

from collections.abc import Callable

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from datamodules.core.types import Obs, require_tensor
from modules.networks.base import has_hooks
from modules.networks.heads.q_value import QHead, QNetwork
from modules.networks.heads.squashed_gaussian import SquashedGaussianHead
from modules.networks.heads.twin_critic import TwinLinear, TwinMLP
from modules.networks.mlp import MLP
from modules.optim.flat_parameters import FlatParameters
from modules.optim.optimizer_group import OptimizerGroup

relu_backward = torch.ops.aten.threshold_backward.grad_input

SUPPORTED_LAYERS = (nn.Flatten, nn.Linear, TwinLinear, nn.ReLU)
"""Layers that `Layers` can replace."""

SUPPORTED_CONTAINERS = (nn.Sequential, MLP, QHead, QNetwork, SquashedGaussianHead, TwinMLP)
"""Modules that contain these layers, with a `forward` that `Layers` can replace."""


class Layers:
    """A ReLU network, or two of them as one batched product.

    Args:
        parameters: weight `[in, out]` or `[2, in, out]` and bias of every layer, alternating.
        gradients: tensors that receive the gradients, in the same order; None without training.
    """

    def __init__(self, parameters: list[Tensor], gradients: list[Tensor] | None = None):
        self.weights, self.biases = parameters[::2], parameters[1::2]
        self.gradients = gradients
        is_single = parameters[0].dim() == 2
        self.affine: Callable[..., Tensor] = torch.addmm if is_single else torch.baddbmm
        self.product: Callable[..., Tensor] = torch.mm if is_single else torch.bmm

    def __call__(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the outputs, and every layer's input."""
        inputs: list[Tensor] = []
        for weight, bias in zip(self.weights, self.biases, strict=True):
            inputs.append(x.relu_() if inputs else x)
            x = self.affine(bias, inputs[-1], weight)
        return x, inputs

    def backward_(self, inputs: list[Tensor], grad_output: Tensor) -> None:
        """Write the gradients of all parameters."""
        assert self.gradients is not None
        for layer in reversed(range(len(inputs))):
            self.product(inputs[layer].mT, grad_output, out=self.gradients[2 * layer])
            torch.sum(grad_output, -2, keepdim=True, out=self.gradients[2 * layer + 1])
            grad_output = self.grad_pre_activation(layer, inputs, grad_output) if layer else grad_output

    def grad_input(self, inputs: list[Tensor], grad_output: Tensor) -> Tensor:
        """Return the gradient by the input of the first layer."""
        for layer in reversed(range(1, len(inputs))):
            grad_output = self.grad_pre_activation(layer, inputs, grad_output)
        return self.product(grad_output, self.weights[0].mT)

    def grad_pre_activation(self, layer: int, inputs: list[Tensor], grad_output: Tensor) -> Tensor:
        """Return the gradient by the input of a layer, before its ReLU; one output column needs no matrix product."""
        weight = self.weights[layer].mT
        grad = grad_output * weight if grad_output.shape[-1] == 1 else self.product(grad_output, weight)
        return relu_backward(grad, inputs[layer], 0, grad_input=grad)


def layers_of(flat: FlatParameters) -> Layers:
    """Return the layers of a network with flat parameters, writing their gradients to the flat gradient."""
    return Layers(*([as_rows(each.detach()) for each in part] for part in (flat.parameters, flat.grad_views)))


def as_features(obs: Obs) -> Tensor:
    """Return observations as the first layer's input; integers are cast, as networks do."""
    obs = require_tensor(obs)
    return obs if obs.dim() == 2 and obs.dtype == torch.float32 else obs.flatten(1).float()


def as_rows(parameter: Tensor) -> Tensor:
    """Return a weight of `nn.Linear` as `[in, out]`, a bias as `[1, out]`."""
    return parameter.t() if parameter.dim() == 2 else parameter.unsqueeze(0)


def is_relu_mlp(network: nn.Module) -> bool:
    """Return whether a network is a ReLU MLP with biases and neither it nor any submodule has a hook or a buffer."""
    layers = [module for module in network.modules() if not list(module.children())]
    containers = [module for module in network.modules() if module not in layers]
    supported = all(type(layer) in SUPPORTED_LAYERS and getattr(layer, "bias", True) is not None for layer in layers)
    supported = supported and all(type(container) in SUPPORTED_CONTAINERS for container in containers)
    return supported and not any(map(has_hooks, network.modules())) and not list(network.buffers())


def is_fully_trainable(network: nn.Module) -> bool:
    """Return whether no parameter is frozen."""
    return all(parameter.requires_grad for parameter in network.parameters())


def uses_flat_fp32_cpu(optimizers: OptimizerGroup, model: LightningModule) -> bool:
    """Return whether the optimizers step flat tensors of float32 on a CPU."""
    flat = len(optimizers.flat) == len(optimizers.each)
    return flat and str(model.trainer.precision) == "32-true" and model.device.type == "cpu"
