"""AuxiliaryLoss: a term that is added to PPO's loss, and the list of those of a model."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import Rollout
from modules.networks.distributions import Distribution
from modules.ppo.batch import PPOBatch

if TYPE_CHECKING:
    from modules.ppo.ppo import PPO

Columns = dict[str, Any]
"""Tensors by name, in nested dictionaries; `[T, B, ...]` in a rollout, and like `PPOBatch` in a batch."""


class ForwardPass(NamedTuple):
    """Outputs of the networks for a minibatch: inputs of the policy head, distribution over actions, value `[*N]`."""

    features: Tensor
    policy: Distribution
    value: Tensor


class AuxiliaryLoss:
    """Base of the terms that are added to PPO's loss. A term has no parameters of its own.

    `loss` is compiled or captured with the update, and `prepare` is captured: both have static shapes, draw no random
    numbers and read no value back. What changes between iterations is a tensor that `update_schedule` fills in place.

    name: key of its columns in `PPOBatch.extras`, and group of its tags.
    metrics: names of its metrics; the tag of `accuracy` is `NAME/accuracy`.
    supports_microbatches: the loss of a minibatch is the mean of those of its microbatches; else they are refused.
    """

    name: str
    metrics: tuple[str, ...] = ()
    supports_microbatches = True

    def on_fit_start(self, model: "PPO") -> None:
        """Create tensors on the model's device; its weights are those of the checkpoint, if the run is resumed."""

    def update_schedule(self, env_steps: int) -> None:
        """Set what depends on the environment steps that this run has taken, before every iteration."""

    def prepare(self, model: "PPO", rollout: Rollout) -> Columns:
        """Return columns `[T, B, ...]` for `loss`; called once per iteration, without gradient."""
        return {}

    def draw(self, model: "PPO", batch: PPOBatch) -> Columns:
        """Return its columns of the whole batch with the random numbers of an epoch; called before every epoch."""
        return batch.extras.get(self.name, {})

    def loss(self, model: "PPO", batch: PPOBatch, forward: ForwardPass) -> tuple[Tensor, list[Tensor]]:
        """Return the term of a minibatch, 0-d, coefficient included, and the values of `metrics`, 0-d."""
        raise NotImplementedError

    def mutated_tensors(self) -> list[Tensor]:
        """Return the tensors that `prepare` changes."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """Return the state that is equal on all ranks, for the checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state saved by `state_dict`, before `on_fit_start`."""

    def rank_state_dict(self) -> dict[str, Any]:
        """Return the state of this rank only, for the checkpoint."""
        return {}

    def load_rank_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        """Restore the state saved by `rank_state_dict`, after `on_fit_start`."""


class AuxiliaryLosses:
    """Auxiliary losses of a model; false if there are none.

    Args:
        losses: in the order in which they are added.

    Raises: ConfigurationError if two have the same name.
    """

    def __init__(self, losses: Iterable[AuxiliaryLoss] = ()):
        self.losses = list(losses)
        names = [loss.name for loss in self.losses]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ConfigurationError(
                f"model.auxiliary_losses has {names.count(twice[0])} losses named {twice[0]}: list each class once."
            )
        self.metrics = tuple(f"{loss.name}/{metric}" for loss in self.losses for metric in loss.metrics)
        self.need_whole_minibatches = [type(loss).__name__ for loss in self.losses if not loss.supports_microbatches]

    def __len__(self) -> int:
        return len(self.losses)

    def on_fit_start(self, model: "PPO") -> None:
        """Create tensors on the model's device.

        Raises: ConfigurationError for microbatches, if a loss needs whole minibatches.
        """
        if self.need_whole_minibatches and model.large_batch.num_microbatches > 1:
            raise ConfigurationError(
                f"{self.need_whole_minibatches[0]} needs the steps of a whole minibatch: set model.num_microbatches to"
                " 1, and model.num_minibatches higher if memory is short."
            )
        for loss in self.losses:
            loss.on_fit_start(model)

    def update_schedule(self, env_steps: int) -> None:
        """Set what depends on the environment steps that this run has taken."""
        for loss in self.losses:
            loss.update_schedule(env_steps)

    def prepare(self, model: "PPO", rollout: Rollout) -> Columns:
        """Return the columns of every loss, by name."""
        return self._by_name(lambda loss: loss.prepare(model, rollout))

    def draw(self, model: "PPO", batch: PPOBatch) -> PPOBatch:
        """Return the batch with the random numbers of an epoch."""
        return batch._replace(extras=batch.extras | self._by_name(lambda loss: loss.draw(model, batch)))

    def loss(self, model: "PPO", batch: PPOBatch, forward: ForwardPass) -> tuple[Tensor, Tensor]:
        """Return the sum of the terms, 0-d, and the values of `metrics` `[len(metrics)]`, detached."""
        terms, values = zip(*(loss.loss(model, batch, forward) for loss in self.losses), strict=True)
        return torch.stack(terms).sum(), torch.stack([value for each in values for value in each]).detach()

    def mutated_tensors(self) -> list[Tensor]:
        """Return the tensors that `prepare` changes."""
        return [tensor for loss in self.losses for tensor in loss.mutated_tensors()]

    def state_dict(self) -> dict[str, Any]:
        """Return the states that are equal on all ranks, by name."""
        return self._by_name(lambda loss: loss.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the states saved by `state_dict`; losses without one begin anew."""
        for loss in self.losses:
            if loss.name in state:
                loss.load_state_dict(state[loss.name])

    def rank_state_dict(self) -> dict[str, Any]:
        """Return the states of this rank, by name."""
        return self._by_name(lambda loss: loss.rank_state_dict())

    def load_rank_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        """Restore the states saved by `rank_state_dict`; losses without one begin anew."""
        for loss in self.losses:
            if loss.name in state:
                loss.load_rank_state_dict(state[loss.name], device)

    def _by_name(self, function: Callable[[AuxiliaryLoss], dict[str, Any]]) -> dict[str, Any]:
        values = {loss.name: function(loss) for loss in self.losses}
        return {name: value for name, value in values.items() if value}
