"""What PPO decides, its values and its gradients written out, for plain networks of one choice, on a CPU.

Autograd takes fresh memory for every product of a minibatch, which a CPU fills with zeros page by page, and its graph
costs as much as a small product. What is written here keeps its room from minibatch to minibatch and passes over it
once. The gradients are those of `PPO.loss` but for the order in which sums are taken, and tests hold them to that.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch import Tensor, nn

from modules.functional.ppo_objective import ppo_gradients
from modules.functional.sampling import MASKED
from modules.manual_backward.relu_mlp import as_features, learns, steps_plainly
from modules.networks.base import has_hooks
from modules.networks.distributions import Distribution
from modules.networks.heads.policy import CategoricalHead, ValueHead
from modules.networks.mlp import MLP
from modules.ppo.batch import PPOBatch

if TYPE_CHECKING:
    from modules.ppo.ppo import PPO

aten = torch.ops.aten


class Activation(NamedTuple):
    """An activation that overwrites its input, and what turns a gradient by its output `y` into one by its input.

    scale: what `forward_` wants its input multiplied by, which costs a product nothing.
    """

    scale: float
    forward_: Callable[[Tensor], Tensor]
    backward_: Callable[[Tensor, Tensor], Tensor]


def tanh_of_half_(x: Tensor) -> Tensor:
    """Overwrite `x` with tanh(x / 2) = 2 sigmoid(x) - 1: four times as fast as torch's, and 2e-7 from it at most."""
    return aten.rsub.Scalar_out(x.sigmoid_(), -1.0, -2.0, out=x)


ACTIVATIONS: dict[type[nn.Module], Activation] = {
    nn.ReLU: Activation(1.0, torch.relu_, lambda by, y: aten.threshold_backward.grad_input(by, y, 0, grad_input=by)),
    nn.Tanh: Activation(2.0, tanh_of_half_, lambda by, y: aten.tanh_backward.grad_input(by, y, grad_input=by)),
}


class Branch:
    """A torso and the heads on it, stacked: their outputs stand in rows, where passing over many of them is fast.

    Args:
        torso: the network, of the layers that `known` knows.
        heads: the linear layers that read its features.
        gradients: where the gradient of each parameter is written; none are where nothing is learned.
    """

    def __init__(self, torso: nn.Module, heads: Sequence[nn.Linear], gradients: Mapping[Tensor, Tensor] | None = None):
        body = [*torso.modules()]
        self.layers = [layer for layer in body if isinstance(layer, nn.Linear)]
        self.activation = next(ACTIVATIONS[type(layer)] for layer in body if type(layer) in ACTIVATIONS)
        self.affine, self.heads = (
            [(of.bias.detach(), of.weight.detach().t()) for of in each] for each in (self.layers, heads)
        )
        if gradients is not None:
            self.by_weight = [gradients[layer.weight] for layer in self.layers]
            self.by_bias = [gradients[layer.bias] for layer in self.layers]
            self.by_heads = [gradients[each] for head in heads for each in (head.weight, head.bias)]
        self.sizes = [head.out_features for head in heads]
        self.outputs = sum(self.sizes)
        self.seen: list[Tensor] = []
        self.by_seen: list[Tensor] = []

    def __call__(self, obs: Tensor, out: Tensor) -> None:
        """Write the outputs of all heads `[outputs, N]` for observations `[N, ...]`."""
        if not self.seen or len(self.seen[0]) != len(obs):
            self.seen, self.by_seen = [obs.new_empty(len(obs), layer.out_features) for layer in self.layers], []
        scale, forward_, _ = self.activation
        self.obs = x = obs
        for (bias, weight), seen in zip(self.affine, self.seen, strict=True):
            x = forward_(torch.addmm(bias, x, weight, beta=scale, alpha=scale, out=seen))
        self.stacked = torch.cat([weight.t() for _, weight in self.heads])
        torch.addmm(torch.cat([bias for bias, _ in self.heads]).unsqueeze(1), self.stacked, x.t(), out=out)

    def each_head(self, obs: Tensor) -> list[Tensor]:
        """The outputs `[N, ...]` of each head for observations `[N, inputs]`; nothing is kept for a gradient."""
        scale, forward_, _ = self.activation
        x = obs
        for bias, weight in self.affine:
            x = forward_(torch.addmm(bias, x, weight, beta=scale, alpha=scale))
        return [torch.addmm(bias, x, weight) for bias, weight in self.heads]

    def learn_(self, by_output: Tensor) -> None:
        """Write the gradients of all parameters, from that of the outputs `[outputs, N]`."""
        self.by_seen = self.by_seen or [torch.empty_like(seen) for seen in self.seen]
        by_weights = torch.mm(by_output, self.seen[-1]).split(self.sizes)
        by_biases = by_output.sum(1).split(self.sizes)
        torch._foreach_copy_(self.by_heads, [each for pair in zip(by_weights, by_biases, strict=True) for each in pair])
        torch.mm(by_output.t(), self.stacked, out=self.by_seen[-1])
        for layer in reversed(range(len(self.layers))):
            by = self.activation.backward_(self.by_seen[layer], self.seen[layer])
            seen = self.seen[layer - 1] if layer else self.obs
            if seen.shape[1] < by.shape[1]:  # a product with few rows is faster than one with few columns
                self.by_weight[layer].copy_(torch.mm(seen.t(), by).t())
            else:
                torch.mm(by.t(), seen, out=self.by_weight[layer])
            torch.sum(by, 0, out=self.by_bias[layer])
            if layer:
                torch.mm(by, self.affine[layer][1].t(), out=self.by_seen[layer - 1])


class Deciding:
    """What a `PPO` decides, by few calls.

    Args:
        model: the `PPO`, or a twin of it.   gradients: as `Branch` takes them.
    """

    def __init__(self, model: "PPO", gradients: Mapping[Tensor, Tensor] | None = None):
        actor, critic = model.actor.linear, model.critic.linear
        if model.value_network is None:
            self.branches = [Branch(model.network, [actor, critic], gradients)]
        else:
            self.branches = [
                Branch(model.network, [actor], gradients),
                Branch(model.value_network, [critic], gradients),
            ]
        self.normalizer, self.scale = model.obs_normalizer, cast(float, cast(MLP, model.network).scale)
        self.head = model.actor

    def decide(self, obs: Tensor, mask: Tensor | None) -> tuple[Distribution, Tensor | None]:
        """The policy for observations `[N, *obs]` without gradient, and from a shared torso the value `[N]`."""
        logits, *value = self.branches[0].each_head(self.features(obs))
        return self.head.distribution(self.head.masked(logits, mask)), value[0].squeeze(-1) if value else None

    def features(self, obs: Tensor) -> Tensor:
        """Observations as the first layers take them, `[N, inputs]`."""
        obs = as_features(obs if self.normalizer is None else self.normalizer(obs))
        return obs if self.scale == 1.0 else obs * self.scale


class WrittenOut(Deciding):
    """Besides, its values, and the gradient of its loss without autograd."""

    def __init__(self, model: "PPO"):
        flat = model.optimization.flat[model.raw_optimizers[0]]
        gradients: dict[Tensor, Tensor] = dict(zip(flat.parameters, flat.views, strict=True))
        super().__init__(model, gradients)
        self.critic = Branch(model.value_network or model.network, [model.critic.linear], gradients)
        self.model, self.sizes = model, [branch.outputs for branch in self.branches]
        self.room = torch.empty(2, sum(self.sizes), 0)

    def value(self, obs: Tensor) -> Tensor:
        """v(s) of observations `[N, *obs]`, `[N]`, without gradient."""
        value = torch.empty(1, len(obs))
        self.critic(self.features(obs), value)
        return value[0]

    @torch.no_grad()
    def differentiate_(self, batch: PPOBatch) -> Tensor:
        """Write the gradient of the loss into the optimizer's flat one; the loss's measures `[5]`."""
        if self.room.shape[2] != batch.size:
            self.room = torch.empty(2, sum(self.sizes), batch.size)
        output, by_output = self.room.unbind()
        obs = self.features(batch.obs)
        for branch, out in zip(self.branches, output.split(self.sizes), strict=True):
            branch(obs, out)
        measures = self.by_output_(batch, output, by_output)
        pairs = [*zip(self.branches, by_output.split(self.sizes), strict=True)]
        for branch, by in reversed(pairs):  # what went forward last still lies in a cache
            branch.learn_(by)
        return measures

    def by_output_(self, batch: PPOBatch, output: Tensor, by_output: Tensor) -> Tensor:
        """Write the loss's gradient by logits and value, the rows of `output`; the loss's measures."""
        logits, action = output[:-1], batch.action.unsqueeze(0)
        if batch.mask is not None:
            logits.masked_fill_(~batch.mask.t(), MASKED)
        log_probs = torch.log_softmax(logits, 0)
        probs = log_probs.exp()
        entropy = -(probs * log_probs).sum(0)
        stored, share = batch.stored()
        chosen = log_probs.gather(0, action).squeeze(0)
        found = ppo_gradients(chosen, entropy, output[-1], **stored, **self.model.settings())
        slope = found.by_log_prob
        if found.by_entropy is not None:
            slope = torch.addcmul(slope, found.by_entropy, log_probs + entropy)
        torch.mul(probs, -slope, out=by_output[:-1]).scatter_add_(0, action, found.by_log_prob.unsqueeze(0))
        by_output[-1] = found.by_value
        if share is not None:
            by_output.mul_(share)
        return found.measures


def can_be_written_out(model: "PPO") -> bool:
    """Whether all of it is what `WrittenOut` knows: one choice, plain networks, float32 on a CPU, a flat optimizer."""
    torsos = [model.network] if model.value_network is None else [model.network, model.value_network]
    heads = type(model.actor) is CategoricalHead and type(model.critic) is ValueHead
    plain = heads and all(type(torso) is MLP and torso.scale is not None and known(torso) for torso in torsos)
    plain = plain and all(affine(head.linear) for head in (model.actor, model.critic))
    return (
        plain
        and learns(model)
        and steps_plainly(model.optimization, model)
        and not any(map(has_hooks, model.modules()))
    )


def known(torso: nn.Module) -> bool:
    """Whether its layers are linear ones with a bias and one kind of activation that is known here."""
    layers = [layer for layer in torso.modules() if not list(layer.children())]
    containers = {type(part) for part in torso.modules() if part not in layers}
    linear = [layer for layer in layers if affine(layer)]
    others = {type(layer) for layer in layers if layer not in linear} - {nn.Flatten}
    return len(others) == 1 and others <= set(ACTIVATIONS) and containers <= {MLP, nn.Sequential}


def affine(layer: nn.Module) -> bool:
    """Tell whether a layer is `nn.Linear` itself, with a bias."""
    return type(layer) is nn.Linear and layer.bias is not None
