"""The updates of deep Q-learning with their gradients written out, for plain networks on a CPU.

The same products in the same order need no autograd, so weights are those of `DQN.learn_all` to the last bit, and tests
hold them to that.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from modules.flat import FlatParameters
from modules.functional.policy import masked_mean
from modules.functional.q_learning import huber
from modules.networks.mlp import MLP
from modules.networks.q_heads import QHead
from modules.written_out import as_features, layers_of, plain, steps_plainly

if TYPE_CHECKING:
    from modules.dqn import DQN, DQNBatch


class WrittenOut:
    """The networks of a `DQN` by few calls, and its `learn_all` without autograd."""

    def __init__(self, model: "DQN"):
        self.model, self.optimizer = model, model.raw_optimizers[0]
        self.flat = model.optimization.flat[self.optimizer]
        self.flat_target = FlatParameters([*model.target.parameters()])
        self.layers, self.target_layers = layers_of(self.flat), layers_of(self.flat_target)

    def online(self, obs: Tensor) -> Tensor:
        """What `DQN.online` says of observations `[N, *obs]`, without gradient."""
        return self.layers(as_features(obs))[0].unsqueeze(-1)

    def target(self, obs: Tensor) -> Tensor:
        """What `DQN.target` says."""
        return self.target_layers(as_features(obs))[0].unsqueeze(-1)

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
        values, seen = self.layers(obs)
        value = values.gather(-1, action)
        error = value - target
        by_values = torch.zeros_like(values).scatter_(-1, action, error.clamp(-1, 1).mul_(share))
        self.layers.learn_(seen, by_values)
        norm = self.model.optimization.step_written(self.optimizer, self.model.max_grad_norm)
        self.model.follow_update_()
        return value, error, norm


def can_be_written_out(model: "DQN") -> bool:
    """Whether all of it is what `WrittenOut` knows: a plain ReLU network and head, and steps that are plain too."""
    torso, head = model.online.torso, model.online.head
    known = type(torso) is MLP and torso.scale == 1 and type(head) is QHead and not head.dueling
    return known and plain(model.online) and plain(model.target) and steps_plainly(model.optimization, model)
