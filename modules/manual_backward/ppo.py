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


def tanh_of_half_(x: Tensor) -> Tensor:
    """Overwrite `x` with tanh(x / 2) = 2 sigmoid(x) - 1: four times as fast as torch.tanh, error at most 2e-7."""
    return aten.rsub.Scalar_out(x.sigmoid_(), -1.0, -2.0, out=x)


ACTIVATIONS: dict[type[nn.Module], Activation] = {
    nn.ReLU: Activation(
        1.0, torch.relu_, lambda grad, y: aten.threshold_backward.grad_input(grad, y, 0, grad_input=grad)
    ),
    nn.Tanh: Activation(2.0, tanh_of_half_, lambda grad, y: aten.tanh_backward.grad_input(grad, y, grad_input=grad)),
}


class Branch:
    """Torso and its stacked heads; outputs are rows `[outputs, N]`, which are fast to pass over.

    Args:
        torso: network that `is_supported_mlp` accepts.
        heads: linear layers on its features.
        gradients: tensor that receives the gradient of each parameter; None without training.
    """

    def __init__(self, torso: nn.Module, heads: Sequence[nn.Linear], gradients: Mapping[Tensor, Tensor] | None = None):
        body = [*torso.modules()]
        self.layers = [layer for layer in body if isinstance(layer, nn.Linear)]
        self.activation = next(ACTIVATIONS[type(layer)] for layer in body if type(layer) in ACTIVATIONS)
        self.affine, self.heads = (
            [(of.bias.detach(), of.weight.detach().t()) for of in each] for each in (self.layers, heads)
        )
        if gradients is not None:
            self.grad_weight = [gradients[layer.weight] for layer in self.layers]
            self.grad_bias = [gradients[layer.bias] for layer in self.layers]
            self.grad_heads = [gradients[each] for head in heads for each in (head.weight, head.bias)]
        self.sizes = [head.out_features for head in heads]
        self.outputs = sum(self.sizes)
        self.activations: list[Tensor] = []
        self.grad_activations: list[Tensor] = []

    def __call__(self, obs: Tensor, out: Tensor) -> None:
        """Write the outputs of all heads `[outputs, N]` for observations `[N, ...]` to `out`."""
        if not self.activations or len(self.activations[0]) != len(obs):
            self.activations = [obs.new_empty(len(obs), layer.out_features) for layer in self.layers]
            self.grad_activations = []
        scale, forward_, _ = self.activation
        self.obs = x = obs
        for (bias, weight), activation in zip(self.affine, self.activations, strict=True):
            x = forward_(torch.addmm(bias, x, weight, beta=scale, alpha=scale, out=activation))
        self.stacked = torch.cat([weight.t() for _, weight in self.heads])
        torch.addmm(torch.cat([bias for bias, _ in self.heads]).unsqueeze(1), self.stacked, x.t(), out=out)

    def forward_heads(self, obs: Tensor) -> list[Tensor]:
        """Return the outputs `[N, ...]` of each head for observations `[N, inputs]`, without storing activations."""
        scale, forward_, _ = self.activation
        x = obs
        for bias, weight in self.affine:
            x = forward_(torch.addmm(bias, x, weight, beta=scale, alpha=scale))
        return [torch.addmm(bias, x, weight) for bias, weight in self.heads]

    def backward_(self, grad_output: Tensor) -> None:
        """Write the gradients of all parameters, given the gradient by the outputs `[outputs, N]`."""
        self.grad_activations = self.grad_activations or [
            torch.empty_like(activation) for activation in self.activations
        ]
        grad_weights = torch.mm(grad_output, self.activations[-1]).split(self.sizes)
        grad_biases = grad_output.sum(1).split(self.sizes)
        torch._foreach_copy_(
            self.grad_heads, [each for pair in zip(grad_weights, grad_biases, strict=True) for each in pair]
        )
        torch.mm(grad_output.t(), self.stacked, out=self.grad_activations[-1])
        for layer in reversed(range(len(self.layers))):
            grad = self.activation.backward_(self.grad_activations[layer], self.activations[layer])
            activation = self.activations[layer - 1] if layer else self.obs
            if activation.shape[1] < grad.shape[1]:  # a product with few rows is faster than one with few columns
                self.grad_weight[layer].copy_(torch.mm(activation.t(), grad).t())
            else:
                torch.mm(grad.t(), activation, out=self.grad_weight[layer])
            torch.sum(grad, 0, out=self.grad_bias[layer])
            if layer:
                torch.mm(grad, self.affine[layer][1].t(), out=self.grad_activations[layer - 1])


class PolicyForward:
    """`PPO.policy_and_value` without autograd.

    Args:
        model: the `PPO`, or a policy copy of it.
        gradients: as in `Branch`.
    """

    def __init__(self, model: PPO, gradients: Mapping[Tensor, Tensor] | None = None):
        actor, critic = model.actor.linear, model.critic.linear
        if model.value_network is None:
            self.branches = [Branch(model.network, [actor, critic], gradients)]
        else:
            self.branches = [
                Branch(model.network, [actor], gradients),
                Branch(model.value_network, [critic], gradients),
            ]
        self.normalizer, self.scale = model.obs_normalizer, cast(float, cast(MLP, model.network).scale)
        self.model, self.head = model, model.actor

    def policy_and_value(self, inputs: PolicyInput) -> tuple[Distribution, Tensor | None, State]:
        """Return the policy, the value `[N]` if the torso is shared, else None, and the empty state."""
        if torch.compiler.is_compiling():
            return type(self.model).policy_and_value(self.model, inputs)
        logits, *value = self.branches[0].forward_heads(self.features(inputs.obs))
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
        super().__init__(model, gradients)
        self.critic = Branch(model.value_network or model.network, [model.critic.linear], gradients)
        self.sizes = [branch.outputs for branch in self.branches]
        self.workspace = torch.empty(2, sum(self.sizes), 0)

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
        measures = self.compute_grads_(batch)
        norm = self.model.optim.step_from_flat_grad(self.model.raw_optimizers[0], self.model.max_grad_norm)
        return torch.cat([measures, norm.unsqueeze(0)]), batch.value

    @torch.no_grad()
    def compute_grads_(self, batch: PPOBatch) -> Tensor:
        """Write the gradient of the loss to the optimizer's flat gradient; return the loss's measures `[5]`."""
        if self.workspace.shape[2] != batch.size:
            self.workspace = torch.empty(2, sum(self.sizes), batch.size)
        output, grad_output = self.workspace.unbind()
        obs = self.features(batch.obs)
        for branch, out in zip(self.branches, output.split(self.sizes), strict=True):
            branch(obs, out)
        measures = self.grad_output_(batch, output, grad_output)
        pairs = [*zip(self.branches, grad_output.split(self.sizes), strict=True)]
        for branch, grad in reversed(pairs):  # the last branch's activations are still cached
            branch.backward_(grad)
        return measures

    def grad_output_(self, batch: PPOBatch, output: Tensor, grad_output: Tensor) -> Tensor:
        """Write the loss's gradient by logits and value, the rows of `output`; return the loss's measures."""
        logits, action = output[:-1], batch.action.unsqueeze(0)
        if batch.mask is not None:
            logits.masked_fill_(~batch.mask.t(), MASKED_LOGIT)
        log_probs = torch.log_softmax(logits, 0)
        probs = log_probs.exp()
        entropy = -(probs * log_probs).sum(0)
        advantage, share = batch.normalized_advantage()
        chosen, model = log_probs.gather(0, action).squeeze(0), self.model
        found = ppo_gradients(
            chosen,
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
        slope = found.grad_log_prob
        if found.grad_entropy is not None:
            slope = torch.addcmul(slope, found.grad_entropy, log_probs + entropy)
        torch.mul(probs, -slope, out=grad_output[:-1]).scatter_add_(0, action, found.grad_log_prob.unsqueeze(0))
        grad_output[-1] = found.grad_value
        if share is not None:
            grad_output.mul_(share)
        return found.measures


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
