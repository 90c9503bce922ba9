"""PPO's forward passes and gradients written by hand, for MLPs with a discrete action, on a CPU.

Autograd allocates new memory for every product of a minibatch, which a CPU zeroes page by page, and its graph costs as
much as a small product. This code reuses its memory for all minibatches and passes over it once. Gradients equal those
of `PPO.loss` up to the order of summation, which tests check.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from datamodules.core.types import Obs, PolicyInput, Rollout, State, require_tensor
from modules.functional.sampling import MASKED_LOGIT
from modules.manual_backward.ppo_gradients import ppo_gradients
from modules.manual_backward.relu_mlp import as_features, is_fully_trainable, uses_flat_fp32_cpu
from modules.networks.base import has_hooks
from modules.networks.distributions import Distribution
from modules.networks.heads.policy import CategoricalHead, ValueHead
from modules.networks.mlp import MLP
from modules.ppo.batch import PPOBatch
from modules.ppo.ppo import PPO

aten = torch.ops.aten


class Activation(NamedTuple):
    """In-place activation, and its backward function from the output `y`.

    scale: factor of the input that `forward_` expects, free of cost inside the matrix product.
    """

    scale: float
    forward_: Callable[[Tensor], Tensor]
    backward_: Callable[[Tensor, Tensor], Tensor]


MINUS_ONE = torch.tensor(-1.0)
"""Tensor instead of a number, so that `tanh_of_half_` is one addition."""


def tanh_of_half_(x: Tensor) -> Tensor:
    """Overwrite `x` with tanh(x / 2) = 2 sigmoid(x) - 1: four times as fast as torch.tanh, error at most 2e-7."""
    return torch.add(MINUS_ONE, x.sigmoid_(), alpha=2.0, out=x)


ACTIVATIONS: dict[type[nn.Module], Activation] = {
    nn.ReLU: Activation(
        1.0, torch.relu_, lambda grad, y: aten.threshold_backward.grad_input(grad, y, 0, grad_input=grad)
    ),
    nn.Tanh: Activation(2.0, tanh_of_half_, lambda grad, y: aten.tanh_backward.grad_input(grad, y, grad_input=grad)),
}


class Torsos:
    """Torsos of one shape as one batched product, with the heads of each.

    Outputs are rows `[outputs, N]`, which are fast to pass over. Attributes of several torsos are `[torsos, ...]`.

    Args:
        torsos: networks that `is_supported_mlp` accepts; the parameters of several are views of one flat tensor.
        heads: linear layers on the features of each torso.
        gradients: tensor that receives the gradient of each parameter; None without training.
    """

    def __init__(
        self,
        torsos: Sequence[nn.Module],
        heads: Sequence[Sequence[nn.Linear]],
        gradients: Mapping[Tensor, Tensor] | None = None,
    ):
        self.activation = activation_of(torsos[0])
        layers = [linear_layers(torso) for torso in torsos]
        biases, weights = (
            [[getattr(of, name).detach() for of in each] for each in zip(*layers, strict=True)]
            for name in ("bias", "weight")
        )
        self.affine = [
            (as_batch(bias).unsqueeze(1), as_batch(weight).mT) for bias, weight in zip(biases, weights, strict=True)
        ]
        self.heads = heads
        self.sizes = [[head.out_features for head in group] for group in heads]
        self.outputs = [sum(group) for group in self.sizes]
        if gradients is not None:
            self.grad_affine = [
                (as_batch([gradients[of.bias] for of in each]), as_batch([gradients[of.weight] for of in each]))
                for each in zip(*layers, strict=True)
            ]
            self.grad_heads = [
                [gradients[each] for head in group for each in (head.weight, head.bias)] for group in heads
            ]
        self.activations: list[Tensor] = []
        self.grad_activations: list[Tensor] = []

    def __call__(self, obs: Tensor, out: Tensor) -> None:
        """Write the outputs of all heads `[outputs, N]` for observations `[N, inputs]` to `out`."""
        x = self.obs = obs.expand(len(self.heads), -1, -1)
        if not self.activations or self.activations[0].shape[1] != len(obs):
            self.activations = [obs.new_empty(*x.shape[:2], bias.shape[-1]) for bias, _ in self.affine]
            self.grad_activations = []
        scale, forward_, _ = self.activation
        for (bias, weight), activation in zip(self.affine, self.activations, strict=True):
            x = forward_(torch.baddbmm(bias, x, weight, beta=scale, alpha=scale, out=activation))
        self.stacked = [torch.cat([head.weight.detach() for head in group]) for group in self.heads]
        for group, weight, features, rows in zip(self.heads, self.stacked, x, out.split(self.outputs), strict=True):
            bias = torch.cat([head.bias.detach() for head in group])
            torch.addmm(bias.unsqueeze(1), weight, features.t(), out=rows)

    def backward_(self, grad_output: Tensor) -> None:
        """Write the gradients of all parameters, given the gradient by the outputs `[outputs, N]`."""
        self.grad_activations = self.grad_activations or [
            torch.empty_like(activation) for activation in self.activations
        ]
        parts = (self.stacked, self.sizes, self.grad_heads, self.activations[-1], self.grad_activations[-1])
        for weight, sizes, grads, features, grad, rows in zip(*parts, grad_output.split(self.outputs), strict=True):
            grad_weights, grad_biases = torch.mm(rows, features).split(sizes), rows.sum(1).split(sizes)
            torch._foreach_copy_(grads, [each for pair in zip(grad_weights, grad_biases, strict=True) for each in pair])
            torch.mm(rows.t(), weight, out=grad)
        for layer in reversed(range(len(self.affine))):
            grad = self.activation.backward_(self.grad_activations[layer], self.activations[layer])
            x, (grad_bias, grad_weight) = self.activations[layer - 1] if layer else self.obs, self.grad_affine[layer]
            if x.shape[-1] < grad.shape[-1]:  # a product with few rows is faster than one with few columns
                grad_weight.copy_(torch.bmm(x.mT, grad).mT)
            else:
                torch.bmm(grad.mT, x, out=grad_weight)
            torch.sum(grad, 1, out=grad_bias)
            if layer:
                torch.bmm(grad, self.affine[layer][1].mT, out=self.grad_activations[layer - 1])


def as_batch(tensors: Sequence[Tensor]) -> Tensor:
    """Return a view `[K, ...]` of K tensors of one shape that lie in the same memory at equal distances."""
    first, *others = tensors
    distance = others[0].storage_offset() - first.storage_offset() if others else 0
    return first.as_strided((len(tensors), *first.shape), (distance, *first.stride()))


def linear_layers(torso: nn.Module) -> list[nn.Linear]:
    """Return the linear layers, in their order."""
    return [layer for layer in torso.modules() if isinstance(layer, nn.Linear)]


def activation_of(torso: nn.Module) -> Activation:
    """Return the activation of a torso that `is_supported_mlp` accepts."""
    return next(ACTIVATIONS[type(layer)] for layer in torso.modules() if type(layer) in ACTIVATIONS)


class PolicyForward:
    """`PPO.policy_and_value` without autograd.

    Args:
        model: the `PPO`, or a policy copy of it.
    """

    def __init__(self, model: PPO):
        heads = [model.actor.linear] if model.value_network is not None else [model.actor.linear, model.critic.linear]
        self.layers, self.heads = (
            [(of.bias.detach(), of.weight.detach().t()) for of in each]
            for each in (linear_layers(model.network), heads)
        )
        self.activation = activation_of(model.network)
        self.normalizer, self.scale = model.obs_normalizer, cast(float, cast(MLP, model.network).scale)
        self.model, self.head = model, model.actor

    def policy_and_value(self, inputs: PolicyInput) -> tuple[Distribution, Tensor | None, State]:
        """Return the policy, the value `[N]` if the torso is shared, else None, and the empty state."""
        if torch.compiler.is_compiling():
            return type(self.model).policy_and_value(self.model, inputs)
        x, (scale, forward_, _) = self.features(inputs.obs), self.activation
        for bias, weight in self.layers:
            x = forward_(torch.addmm(bias, x, weight, beta=scale, alpha=scale))
        logits, *value = [torch.addmm(bias, x, weight) for bias, weight in self.heads]
        policy = self.head.distribution(self.head.masked(logits, inputs.action_mask))
        return policy, value[0].squeeze(-1) if value else None, inputs.state

    def features(self, obs: Obs) -> Tensor:
        """Return observations as the first layers' input, `[N, inputs]`."""
        features = as_features(obs if self.normalizer is None else self.normalizer(obs))
        return features if self.scale == 1.0 else features * self.scale


class ManualPPO(PolicyForward):
    """Methods of `PPO` without autograd, under the names of those that they replace."""

    def __init__(self, model: PPO):
        flat = model.optim.flat[model.raw_optimizers[0]]
        gradients: dict[Tensor, Tensor] = dict(zip(flat.parameters, flat.grad_views, strict=True))
        super().__init__(model)
        actor, critic, separate = model.actor.linear, model.critic.linear, model.value_network
        torsos = [model.network] if separate is None else [model.network, separate]
        self.torsos = Torsos(torsos, [[actor, critic]] if separate is None else [[actor], [critic]], gradients)
        self.critic = Torsos(torsos[-1:], [[critic]])
        self.workspace = torch.empty(2, sum(self.torsos.outputs), 0)

    def policy_copy(self) -> PPO:
        """Return a copy that acts without autograd too."""
        policy_copy = type(self.model).policy_copy(self.model)
        policy_copy.replace_methods_({"policy_and_value": PolicyForward(policy_copy).policy_and_value})
        return policy_copy

    def values(self, rollout: Rollout) -> tuple[Tensor, State]:
        """Return v(s_0) to v(s_T) `[T+1, B]`, and no states."""
        if "value" in rollout.extras:
            return type(self.model).values(self.model, rollout)
        obs = self.features(require_tensor(rollout.obs).flatten(0, 1))
        value = torch.empty(1, len(obs))
        self.critic(obs, value)
        return value.view(len(rollout.reward) + 1, -1), {}

    def train_minibatch(self, batch: PPOBatch) -> tuple[Tensor, Tensor]:
        """Take one optimizer step; return its metrics, and the batch's values as they were."""
        metrics = self.compute_grads_(batch)
        norm = self.model.optim.step_from_flat_grad(self.model.raw_optimizers[0], self.model.max_grad_norm)
        return torch.cat([metrics, norm.unsqueeze(0)]), batch.value

    @torch.no_grad()
    def compute_grads_(self, batch: PPOBatch) -> Tensor:
        """Write the gradient of the loss to the optimizer's flat gradient; return the loss's metrics `[5]`."""
        if self.workspace.shape[2] != batch.size:
            self.workspace = torch.empty(2, sum(self.torsos.outputs), batch.size)
        output, grad_output = self.workspace.unbind()
        self.torsos(self.features(batch.obs), output)
        metrics = self.grad_output_(batch, output, grad_output)
        self.torsos.backward_(grad_output)
        return metrics

    def grad_output_(self, batch: PPOBatch, output: Tensor, grad_output: Tensor) -> Tensor:
        """Write the loss's gradient by logits and value, the rows of `output`; return the loss's metrics."""
        logits, action = output[:-1], batch.action.unsqueeze(0)
        if batch.mask is not None:
            logits.masked_fill_(~batch.mask.t(), MASKED_LOGIT)
        log_probs = torch.log_softmax(logits, 0)
        probs = log_probs.exp()
        entropy = -(probs * log_probs).sum(0)
        advantage, loss_scale = batch.normalized_advantage()
        log_prob, model = log_probs.gather(0, action).squeeze(0), self.model
        gradients = ppo_gradients(
            log_prob,
            entropy,
            output[-1],
            old_log_prob=batch.log_prob,
            old_value=batch.value,
            advantage=advantage,
            target=batch.target,
            clip=model.clip_range_tensor,
            value_clip_range=model.value_clip_range,
            value_loss_coef=model.value_loss_coef,
            entropy_coef=model.entropy_coef,
            valid=batch.valid,
        )
        slope = gradients.grad_log_prob
        if gradients.grad_entropy is not None:
            slope = torch.addcmul(slope, gradients.grad_entropy, log_probs + entropy)
        torch.mul(probs, -slope, out=grad_output[:-1]).scatter_add_(0, action, gradients.grad_log_prob.unsqueeze(0))
        grad_output[-1] = gradients.grad_value
        if loss_scale is not None:
            grad_output.mul_(loss_scale)
        return gradients.metrics


def methods(model: PPO) -> dict[str, Callable[..., Any]]:
    """Return the methods to replace, by name."""
    manual = ManualPPO(model)
    return {name: getattr(manual, name) for name in ("policy_and_value", "policy_copy", "values", "train_minibatch")}


def supports(model: PPO) -> bool:
    """Return whether `ManualPPO` covers the model: discrete actions, MLPs, float32 on a CPU, no auxiliary loss."""
    torsos = [model.network] if model.value_network is None else [model.network, model.value_network]
    heads = type(model.actor) is CategoricalHead and type(model.critic) is ValueHead
    supported = heads and all(
        type(torso) is MLP and torso.scale is not None and is_supported_mlp(torso) for torso in torsos
    )
    supported = supported and len({str(torso) for torso in torsos}) == 1
    supported = supported and not model.large_batch.changes_updates
    supported = supported and all(affine(head.linear) for head in (model.actor, model.critic))
    return (
        supported
        and not model.auxiliary_losses
        and is_fully_trainable(model)
        and uses_flat_fp32_cpu(model.optim, model)
        and not any(map(has_hooks, model.modules()))
    )


def is_supported_mlp(torso: nn.Module) -> bool:
    """Return whether the layers are linear with bias, with one kind of activation in `ACTIVATIONS`."""
    layers = [layer for layer in torso.modules() if not list(layer.children())]
    containers = {type(part) for part in torso.modules() if part not in layers}
    linear = [layer for layer in layers if affine(layer)]
    others = {type(layer) for layer in layers if layer not in linear} - {nn.Flatten}
    return len(others) == 1 and others <= set(ACTIVATIONS) and containers <= {MLP, nn.Sequential}


def affine(layer: nn.Module) -> bool:
    """Return whether a layer is exactly `nn.Linear`, with a bias."""
    return type(layer) is nn.Linear and layer.bias is not None
