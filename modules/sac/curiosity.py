"""Intrinsic curiosity: a reward for transitions that a learned forward model predicts badly."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules.core.arguments import check_ranges
from datamodules.core.pytree import tree_map
from datamodules.core.types import Obs, SpaceSpec
from modules.base.checks import check_feed_forward, check_one_step
from modules.networks.base import Network, extract_features, run_layers
from modules.networks.mlp import MLP
from modules.networks.multi_input import make_network, obs_shape_of
from modules.sac.batch import SACBatch

if TYPE_CHECKING:
    from modules.sac.sac import SAC

MIN_MEAN_ERROR = 1e-12
"""Lower bound of the mean error that divides the reward, so that a well predicted environment gives little."""


class NoCuriosity(nn.Module):
    """No curiosity: rewards do not change, no parameters."""

    metric_names: tuple[str, ...] = ()
    rates: tuple[float, ...] = ()

    @property
    def groups(self) -> list[list[nn.Parameter]]:
        """Return the parameters, one list per optimizer."""
        return []

    def check(self, data: Any) -> None:
        """Check the data.

        Raises: ConfigurationError for data that curiosity cannot learn from.
        """

    def anneal_(self, env_steps: int) -> None:
        """Set the scale for the environment steps taken."""

    def add_intrinsic_reward(self, batch: SACBatch) -> SACBatch:
        """Return all minibatches `[U, N, ...]` with the intrinsic reward added; call it without gradient."""
        return batch

    def learn_(self, batch: SACBatch, model: "SAC") -> list[Tensor]:
        """Train on a minibatch with the model's optimizer number `curiosity_index`; return the metrics."""
        return []


class Curiosity(NoCuriosity):
    """Intrinsic curiosity module, trained on the agent's transitions.

    r = r_environment + scale e / mean(e),   e = 1/2 |f(phi(s), a) - phi(s')|^2

    The features phi are learned with the forward model f and an inverse model g, which predicts a from phi(s) and
    phi(s'): they represent only what actions affect. The mean is over all data of an iteration, so that `scale` is the
    mean intrinsic reward per step, whatever the units of the features and the quality of the predictions.

    Args:
        spaces: observation and action space; given by the algorithm.
        network: makes phi from `obs_shape` (a class_path on the command line); not recurrent.
        hidden: width of the hidden layer in the forward and in the inverse model.
        scale: mean intrinsic reward per step, in the environment's units; 0 leaves rewards unchanged.
        anneal_env_steps: environment steps of the scale's linear decay to 0; null keeps it constant.
        forward_weight: beta, weight of the forward model's error in the loss, in [0, 1].
        learning_rate: learning rate of Adam.

    Raises: ConfigurationError for values out of range.

    Source: Pathak et al. 2017, arXiv:1705.05363, eq. 2 to 7; normalisation of the reward: Burda et al. 2018,
    arXiv:1808.04355, section 2.2.
    """

    metric_names = ("curiosity/scale", "curiosity/forward_loss", "curiosity/inverse_loss")
    current_scale: Tensor

    def __init__(
        self,
        spaces: SpaceSpec,
        network: Callable[[tuple[int, ...]], nn.Module] = MLP,
        hidden: int = 64,
        scale: float = 0.1,
        anneal_env_steps: int | None = None,
        forward_weight: float = 0.2,
        learning_rate: float = 1e-3,
    ):
        super().__init__()
        check_ranges(
            "Curiosity",
            ("hidden", hidden, hidden >= 1, "at least 1"),
            ("scale", scale, scale >= 0, "at least 0"),
            (
                "anneal_env_steps",
                anneal_env_steps,
                anneal_env_steps is None or anneal_env_steps >= 1,
                "at least 1, or null",
            ),
            ("forward_weight", forward_weight, 0 <= forward_weight <= 1, "a weight from 0 to 1"),
            ("learning_rate", learning_rate, learning_rate > 0, "a positive number"),
        )
        self.scale, self.anneal_env_steps = scale, anneal_env_steps
        self.forward_weight, self.rates = forward_weight, (learning_rate,)
        self.choices = None if spaces["action_type"] == "continuous" else spaces["action_sizes"][0]
        actions = self.choices or len(spaces["action_low"])
        with torch.random.fork_rng(devices=[]):  # later modules get the same initial weights as without it
            self.network = make_network(network, obs_shape_of(spaces))
            check_feed_forward(self.network, "curiosity")
            features = cast(Network, self.network).features
            self.forward_model = _model(features + actions, hidden, features)
            self.inverse_model = _model(2 * features, hidden, actions)
        self.register_buffer("current_scale", torch.tensor(scale), persistent=False)

    @property
    def groups(self) -> list[list[nn.Parameter]]:
        """Return all parameters, for one optimizer."""
        return [[*self.parameters()]]

    def check(self, data: Any) -> None:
        """Check that the data has one-step windows, which the forward model predicts.

        Raises: ConfigurationError for windows of several steps.
        """
        check_one_step(data, "curiosity")

    def anneal_(self, env_steps: int) -> None:
        """Set the linearly decaying scale."""
        left = 1.0 if self.anneal_env_steps is None else max(0.0, 1.0 - env_steps / self.anneal_env_steps)
        self.current_scale.fill_(self.scale * left)

    def prediction_errors(self, obs: Obs, action: Tensor, next_obs: Obs) -> tuple[Tensor, Tensor]:
        """Return the errors of the forward model, 1/2 |f(phi(s), a) - phi(s')|^2, and of the inverse model; both `[N]`.

        Args:
            obs, next_obs: `[N, *obs]`.
            action: `[N, dims]` in [-1, 1], or discrete actions `[N]`.
        """
        phi, next_phi = extract_features(self.network, obs), extract_features(self.network, next_obs)
        action_input = action if self.choices is None else F.one_hot(action, self.choices).to(phi.dtype)
        forward = 0.5 * (run_layers(self.forward_model, torch.cat([phi, action_input], -1)) - next_phi).square().sum(-1)
        predicted = run_layers(self.inverse_model, torch.cat([phi, next_phi], -1))
        if self.choices is None:
            return forward, 0.5 * (predicted - action).square().sum(-1)
        return forward, F.cross_entropy(predicted, action, reduction="none")

    def add_intrinsic_reward(self, batch: SACBatch) -> SACBatch:
        """Return all minibatches `[U, N, ...]` with the intrinsic reward of the current model added."""
        obs, next_obs = (tree_map(lambda part: part.flatten(0, 1), obs) for obs in (batch.obs, batch.next_obs))
        error, _ = self.prediction_errors(obs, batch.action.flatten(0, 1), next_obs)
        error, counts = error.view_as(batch.return_), batch.counts
        mean = (counts * error).sum() / counts.sum().clamp(min=1)
        return batch._replace(return_=batch.return_ + self.current_scale * error / mean.clamp(min=MIN_MEAN_ERROR))

    def learn_(self, batch: SACBatch, model: "SAC") -> list[Tensor]:
        """Train on a minibatch with the model's optimizer number `curiosity_index`; return the metrics."""
        loss, metrics = self.loss(batch)
        model.step(loss, model.raw_optimizers[model.curiosity_index], math.inf)
        return metrics

    def loss(self, batch: SACBatch) -> tuple[Tensor, list[Tensor]]:
        """Return beta times the forward and 1 - beta times the inverse error, mean of a minibatch; and the metrics."""
        errors, counts = self.prediction_errors(batch.obs, batch.action, batch.next_obs), batch.counts
        forward, inverse = ((counts * error).mean() for error in errors)
        loss = self.forward_weight * forward + (1 - self.forward_weight) * inverse
        return loss, [self.current_scale, forward.detach(), inverse.detach()]


def _model(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
