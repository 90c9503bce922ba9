"""Intrinsic curiosity: a reward for what a learned model of the world does not foresee yet."""

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules.core.errors import UsageError
from datamodules.core.types import Spaces
from modules.base.checks import check_memoryless, check_single_steps
from modules.networks.base import Network, features_of, through
from modules.networks.mlp import MLP
from modules.sac.batch import SACBatch

FORESEEN = 1e-12
"""A mean error below which the world counts as known and little is rewarded."""


class Incurious(nn.Module):
    """No curiosity: rewards stay what they are, and nothing is learned."""

    metrics: tuple[str, ...] = ()
    rates: tuple[float, ...] = ()

    @property
    def groups(self) -> list[list[nn.Parameter]]:
        """Parameters, a list for each optimizer."""
        return []

    def check(self, data: Any) -> None:
        """Raises: UsageError for data that it cannot learn from."""

    def anneal_(self, env_steps: int) -> None:
        """Set the scale for what comes after so many environment steps."""

    def rewarded(self, batch: SACBatch) -> SACBatch:
        """All minibatches `[U, N, ...]`, with the reward for what is new added; call it without gradient."""
        return batch

    def learn_(self, batch: SACBatch, model: Any) -> list[Tensor]:
        """An update from a minibatch by the model's optimizer number `curious_at`; the metrics."""
        return []


class Curiosity(Incurious):
    """The intrinsic curiosity module, which learns from the transitions that the agent learns from.

    r = r_environment + scale e / mean(e),   e = 1/2 |f(phi(s), a) - phi(s')|^2

    The features phi are learned with the forward model f and with an inverse model g, which tells a from phi(s) and
    phi(s'): what no action touches need not be foreseen. The mean is over all that an iteration learns from, so that
    the scale is the mean reward a step, whatever the features' units and however well the world is foreseen by now.

    Args:
        spaces: what the environment shows and takes; the algorithm gives it.
        network: makes phi from `obs_shape` (a class_path on the command line); memoryless.
        hidden: width of the layer in the forward and in the inverse model.
        scale: mean reward a step, in the environment's units; 0 leaves every reward as it is.
        anneal_env_steps: in these the scale falls to 0, on a line; null keeps it.
        forward_weight: beta, share of the forward model's error in the loss, in [0, 1].
        learning_rate: of Adam.

    Raises: UsageError for values that cannot be.

    Source: Pathak et al. 2017, arXiv:1705.05363, eq. 2 to 7; that the reward needs a scale of its own: Burda et al.
    2018, arXiv:1808.04355, section 2.2.
    """

    metrics = ("curiosity/scale", "curiosity/forward_loss", "curiosity/inverse_loss")
    present: Tensor

    def __init__(
        self,
        spaces: Spaces,
        network: Callable[[tuple[int, ...]], nn.Module] = MLP,
        hidden: int = 64,
        scale: float = 0.1,
        anneal_env_steps: int | None = None,
        forward_weight: float = 0.2,
        learning_rate: float = 1e-3,
    ):
        super().__init__()
        if scale < 0 or hidden < 1 or learning_rate <= 0 or (anneal_env_steps or 1) < 1 or not 0 <= forward_weight <= 1:
            raise UsageError(
                "Curiosity needs scale from 0, forward_weight in [0, 1], and hidden, learning_rate and anneal_env_steps"
                f" above 0; they are {scale}, {forward_weight}, {hidden}, {learning_rate} and {anneal_env_steps}."
            )
        self.scale, self.anneal_env_steps = scale, anneal_env_steps
        self.forward_weight, self.rates = forward_weight, (learning_rate,)
        self.choices = None if spaces["action_kind"] == "continuous" else spaces["action_sizes"][0]
        actions = self.choices or len(spaces["action_low"])
        with torch.random.fork_rng(devices=[]):  # whoever is made next is what it is without curiosity
            self.network = network(spaces["obs_shape"])
            check_memoryless(self.network, "curiosity")
            features = cast(Network, self.network).features
            self.ahead = _model(features + actions, hidden, features)
            self.back = _model(2 * features, hidden, actions)
        self.register_buffer("present", torch.tensor(scale), persistent=False)

    @property
    def groups(self) -> list[list[nn.Parameter]]:
        """All parameters, for one optimizer."""
        return [[*self.parameters()]]

    def check(self, data: Any) -> None:
        """Raises: UsageError for windows of several steps: it foresees one."""
        check_single_steps(data, "curiosity")

    def anneal_(self, env_steps: int) -> None:
        """Set the scale, which falls on a line."""
        left = 1.0 if self.anneal_env_steps is None else max(0.0, 1.0 - env_steps / self.anneal_env_steps)
        self.present.fill_(self.scale * left)

    def errors(self, obs: Tensor, action: Tensor, next_obs: Tensor) -> tuple[Tensor, Tensor]:
        """Of the forward model, 1/2 |f(phi(s), a) - phi(s')|^2, and of the inverse model; both `[N]`.

        Args:
            obs, next_obs: `[N, *obs]`.   action: `[N, dims]` in [-1, 1], or choices `[N]`.
        """
        here, there = features_of(self.network, obs), features_of(self.network, next_obs)
        done = action if self.choices is None else F.one_hot(action, self.choices).to(here.dtype)
        forward = 0.5 * (through(self.ahead, torch.cat([here, done], -1)) - there).square().sum(-1)
        told = through(self.back, torch.cat([here, there], -1))
        if self.choices is None:
            return forward, 0.5 * (told - action).square().sum(-1)
        return forward, F.cross_entropy(told, action, reduction="none")

    def rewarded(self, batch: SACBatch) -> SACBatch:
        """All minibatches, with the reward of the model of now."""
        error, _ = self.errors(*(each.flatten(0, 1) for each in (batch.obs, batch.action, batch.next_obs)))
        error, counts = error.view_as(batch.return_), batch.weight.sign()
        mean = (counts * error).sum() / counts.sum().clamp(min=1)
        return batch._replace(return_=batch.return_ + self.present * error / mean.clamp(min=FORESEEN))

    def learn_(self, batch: SACBatch, model: Any) -> list[Tensor]:
        """An update from a minibatch by the model's optimizer number `curious_at`; the metrics."""
        loss, measured = self.loss(batch)
        model.step(loss, model.raw_optimizers[model.curious_at], math.inf)
        return measured

    def loss(self, batch: SACBatch) -> tuple[Tensor, list[Tensor]]:
        """Beta times the forward and 1 - beta times the inverse error, meant over a minibatch; and the metrics."""
        counts = batch.weight.sign()
        errors = self.errors(batch.obs, batch.action, batch.next_obs)
        forward, inverse = ((counts * error).mean() for error in errors)
        loss = self.forward_weight * forward + (1 - self.forward_weight) * inverse
        return loss, [self.present, forward.detach(), inverse.detach()]


def _model(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
