"""The updates of deep Q-learning with their gradients written out, for plain networks on a CPU.

The same products in the same order need no autograd, so weights are those of `DQN.learn_all` to the last bit, and tests
hold them to that.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from modules.functional.policy_gradient import masked_mean
from modules.functional.q_learning import huber
from modules.manual_backward.relu_mlp import Layers, as_features, layers_of, learns, plain, steps_plainly
from modules.networks.base import has_hooks
from modules.networks.heads.q_value import QHead
from modules.networks.mlp import MLP
from modules.optim.flat_parameters import FlatParameters

if TYPE_CHECKING:
    from modules.dqn.dqn import DQN, DQNBatch

ROWS = 2048
"""The most that pass the layers at once: what many more write finds no room in a cache, nor memory that is kept."""


class WrittenOut:
    """The networks of a `DQN` by few calls, and its `learn_all` without autograd."""

    def __init__(self, model: "DQN"):
        self.model, self.head, self.optimizer = model, model.online.head, model.raw_optimizers[0]
        self.flat = model.optimization.flat[self.optimizer]
        self.flat_target = FlatParameters([*model.target.parameters()])
        self.layers, self.target_layers = layers_of(self.flat), layers_of(self.flat_target)

    def online(self, obs: Tensor) -> Tensor:
        """What `DQN.online` says of observations `[N, *obs]`, without gradient."""
        return self.head.numbers_of(outputs(self.layers, as_features(obs)))

    def target(self, obs: Tensor) -> Tensor:
        """What `DQN.target` says."""
        return self.head.numbers_of(outputs(self.target_layers, as_features(obs)))

    def follow_(self, share: float) -> None:
        """As `DQN.follow_`."""
        self.flat_target.values.lerp_(self.flat.values, share)

    @torch.no_grad()
    def learn_all(self, batch: "DQNBatch") -> tuple[Tensor, Tensor]:
        """All updates of an iteration: means of the metrics, and absolute errors `[U, N]`."""
        share = batch.weight * (1 / batch.weight.shape[-1])
        rows = (batch.obs.flatten(2).float(), batch.action.unsqueeze(-1), share.unsqueeze(-1))
        targets = map(self.model.targets, batch.minibatches()) if batch.target is None else batch.target.unbind()
        steps = [self.learn(*each) for each in zip(*(column.unbind() for column in rows), targets, strict=True)]
        value, error, norm = (torch.stack(each) for each in zip(*steps, strict=True))
        loss, distance = huber(error) * share.unsqueeze(-1), error.squeeze(-1).abs()
        measured = [loss.sum() / len(loss), value.mean(), masked_mean(distance, batch.weight > 0), norm.mean()]
        return torch.stack(measured), distance

    def learn(self, obs: Tensor, action: Tensor, share: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One optimizer step: values of what was done and their errors, `[N, 1]`, and the gradient norm.

        Args:
            obs: `[N, features]`.   action, target: what was done and what its value should be, `[N, 1]`.
            share: of every entry in the loss, `[N, 1]`.
        """
        output, seen = self.layers(obs)
        values = self.head.numbers_of(output).squeeze(-1)
        value = values.gather(-1, action)
        error = value - target
        by_value = error.clamp(-1, 1).mul_(share)
        by_output = torch.zeros_like(values).scatter_(-1, action, by_value)
        if self.head.dueling:
            by_output = torch.cat([by_value, by_output - by_value / values.shape[-1]], -1)
        self.layers.learn_(seen, by_output)
        norm = self.model.optimization.step_written(self.optimizer, self.model.max_grad_norm)
        self.model.follow_update_()
        return value, error, norm


def outputs(layers: Layers, x: Tensor) -> Tensor:
    """What layers make of `x` `[N, features]`."""
    if len(x) <= ROWS:
        return layers(x)[0]
    return torch.cat([layers(piece)[0] for piece in x.tensor_split(-(-len(x) // ROWS))])


def can_be_written_out(model: "DQN") -> bool:
    """Whether all of it is what `WrittenOut` knows: plain ReLU networks, a head of values, plain steps."""
    torso, head = model.online.torso, model.online.head
    known = learns(model.online) and type(torso) is MLP and torso.scale == 1 and type(head) is QHead
    known = known and not has_hooks(model)
    return known and plain(model.online) and plain(model.target) and steps_plainly(model.optimization, model)
