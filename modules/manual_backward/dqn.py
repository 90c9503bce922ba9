"""DQN's updates with hand-written gradients, for ReLU MLPs on a CPU.

The same products in the same order without autograd: weights equal those of `DQN.train_minibatches` to the last bit,
which tests check.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from datamodules.core.types import require_tensor
from modules.dqn.dqn import DQN, DQNBatch
from modules.functional.q_learning import huber
from modules.manual_backward.relu_mlp import (
    Layers,
    as_features,
    is_fully_trainable,
    is_relu_mlp,
    layers_of,
    uses_flat_fp32_cpu,
)
from modules.networks.base import has_hooks
from modules.networks.heads.q_value import QHead
from modules.networks.mlp import MLP
from modules.optim.flat_parameters import FlatParameters

ROWS = 256
"""Maximum number of rows per forward pass: outputs of more exceed the cache, and their memory is allocated anew."""


class ManualDQN:
    """Methods of `DQN` without autograd, under the names of those that they replace."""

    def __init__(self, model: DQN):
        self.model, self.head, self.optimizer = model, model.online.head, model.raw_optimizers[0]
        self.flat = model.optim.flat[self.optimizer]
        self.flat_target = FlatParameters([*model.target.parameters()])
        self.layers, self.target_layers = layers_of(self.flat), layers_of(self.flat_target)

    def q_outputs(self, network: nn.Module, obs: Tensor) -> Tensor:
        """Return the outputs of the online or the target network for observations `[N, *obs]`."""
        layers = self.target_layers if network is self.model.target else self.layers
        return self.head.split_dueling(outputs(layers, as_features(obs)))

    def polyak_update_(self, tau: float) -> None:
        """Set the target network's parameters to (1 - tau) target + tau online."""
        self.flat_target.values.lerp_(self.flat.values, tau)

    @torch.no_grad()
    def train_minibatches(self, batch: DQNBatch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Train on every minibatch; return the mean loss, values, absolute errors `[U, N]` and gradient norms `[U]`."""
        weight = batch.weight * (1 / batch.weight.shape[-1])
        rows = (require_tensor(batch.obs).flatten(2).float(), batch.action.unsqueeze(-1), weight.unsqueeze(-1))
        targets = map(self.model.targets, batch.minibatches()) if batch.target is None else batch.target.unbind()
        steps = [
            self.train_minibatch(*each) for each in zip(*(column.unbind() for column in rows), targets, strict=True)
        ]
        value, error, norm = (torch.stack(each) for each in zip(*steps, strict=True))
        loss = huber(error) * weight.unsqueeze(-1)
        return loss.sum() / len(loss), value, error.squeeze(-1).abs(), norm

    def train_minibatch(
        self, obs: Tensor, action: Tensor, weight: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Take one optimizer step; return the taken actions' values and errors, `[N, 1]`, and the gradient norm.

        Args:
            obs: `[N, features]`.
            action: taken actions, `[N, 1]`.
            weight: of every entry in the mean loss, `[N, 1]`.
            target: target of the action's value, `[N, 1]`.
        """
        output, inputs = self.layers(obs)
        values = self.head.split_dueling(output).squeeze(-1)
        value = values.gather(-1, action)
        error = value - target
        grad_value = error.clamp(-1, 1).mul_(weight)
        grad_output = torch.zeros_like(values).scatter_(-1, action, grad_value)
        if self.head.dueling:
            grad_output = torch.cat([grad_value, grad_output - grad_value / values.shape[-1]], -1)
        self.layers.backward_(inputs, grad_output)
        norm = self.model.optim.step_from_flat_grad(self.optimizer, self.model.max_grad_norm)
        self.model.update_target_()
        return value, error, norm


def outputs(layers: Layers, x: Tensor) -> Tensor:
    """Return the output of the layers for `x` `[N, features]`."""
    if len(x) <= ROWS:
        return layers(x)[0]
    return torch.cat([layers(piece)[0] for piece in x.tensor_split(-(-len(x) // ROWS))])


def methods(model: DQN) -> dict[str, Callable[..., Any]]:
    """Return the methods to replace, by name."""
    manual = ManualDQN(model)
    return {name: getattr(manual, name) for name in ("q_outputs", "polyak_update_", "train_minibatches")}


def supports(model: DQN) -> bool:
    """Return whether `ManualDQN` covers the model: ReLU networks, value heads, flat float32 optimizers on a CPU."""
    torso, head = model.online.torso, model.online.head
    supported = is_fully_trainable(model.online) and type(torso) is MLP and torso.scale == 1 and type(head) is QHead
    supported = supported and not has_hooks(model)
    return (
        supported and is_relu_mlp(model.online) and is_relu_mlp(model.target) and uses_flat_fp32_cpu(model.optim, model)
    )
