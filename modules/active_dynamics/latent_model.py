"""Latent dynamical model: encoder, decoder and latent dynamics, trained together by an evidence lower bound."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from datamodules.core.errors import ConfigurationError
from modules.exploration.observation_box import ObservationBox
from modules.functional.dynamics.elbo import (
    StatePosterior,
    Terms,
    fill_masked_states,
    initial_term,
    observed_rows,
    step_weights,
    transition_terms,
    valid_rows,
)
from modules.functional.dynamics.gaussian import sample
from modules.functional.dynamics.linear_gaussian import box_extent, probabilistic_pca, rescale, state_sensor
from modules.optim.distributed import all_reduce_sum


class Draws(NamedTuple):
    """Random numbers of one loss.

    states: standard normal `[S, T, N, D]`.
    gaps: of transitions over hidden rows `[S, L, N, D]`.
    paths: of rollouts `[K-1, S, L, N, D]`.
    hidden: uniforms `[T, N]`.
    """

    states: Tensor
    gaps: Tensor
    paths: Tensor
    hidden: Tensor


class LatentModel(nn.Module):
    """Latent dynamical model trained by a k-step evidence lower bound.

    z_{t+1} = z_t + dt (f(z_t) + B u_t) + noise,   y_t ~ p(y | z_t)

    L = E_q sum_t log p(y_t | z_t) - beta sum_k w_k KL_k - KL(q(z_1) || N(0, 1)),   w_k ~ kl_decay^(k-1), sum 1

    KL_k compares the posterior of a state with its prior from k steps before
    (`modules.functional.dynamics.elbo.transition_terms`). Rows that a temporal mask hides are filled in by the
    dynamics: the likelihood of these rows trains f through the decoder.

    Args:
        encoder: q(z | y) (`modules.networks.latent.encoders`).
        decoder: p(y | z) (`modules.networks.latent.decoders`).
        dynamics: f and the process noise (`modules.networks.latent.dynamics`).
        action_encoder: B (`modules.networks.latent.action_encoders`).
        samples: S, number of posterior samples.
        overshooting_steps: K, number of steps ahead that the prior predicts.
        kl_decay: ratio of the KL weights of consecutive steps ahead.
        mask_prob: probability that a row is hidden; 0 while beta warms up.
        mask_with_mean: fill a hidden row with the mean of the transition instead of a sample.
        detach_multi_step: no gradient of the KLs of two and more steps to the posterior.
        warm_up: fraction of the run, or of a cycle, in which beta rises from 0 to 1.
        cycles: number of beta's warm-ups in a run.

    Raises: ValueError if a number is out of range.

    Source: Krishnan et al. 2017, arXiv:1609.09869, for the bound of one step; Hafner et al. 2019,
    arXiv:1811.04551, section 4, for priors of several; Fu et al. 2019, arXiv:1903.10145, for cycles.
    """

    observed = False
    measures = ("log_likelihood", "kl", "beta")
    weights: Tensor
    beta: Tensor
    hidden: Tensor
    encoder: Any
    decoder: Any
    dynamics: Any

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        dynamics: nn.Module,
        action_encoder: nn.Module,
        samples: int = 5,
        overshooting_steps: int = 5,
        kl_decay: float = 0.8,
        mask_prob: float = 0.2,
        mask_with_mean: bool = False,
        detach_multi_step: bool = False,
        warm_up: float = 0.2,
        cycles: int = 1,
    ):
        super().__init__()
        if min(samples, cycles) < 1 or not (0 <= mask_prob < 1 and 0 <= warm_up <= 1):
            raise ValueError(
                f"LatentModel cannot have samples {samples}, cycles {cycles}, mask_prob {mask_prob} and warm_up"
                f" {warm_up}: the first two must be at least 1, mask_prob in [0, 1) and warm_up in [0, 1]."
            )
        self.encoder, self.decoder, self.dynamics, self.action_encoder = encoder, decoder, dynamics, action_encoder
        self.samples, self.mask_prob = samples, mask_prob
        self.mask_with_mean, self.detach_multi_step = mask_with_mean, detach_multi_step
        self.warm_up, self.cycles = warm_up, cycles
        self.register_buffer("weights", step_weights(overshooting_steps, kl_decay), persistent=False)
        self.register_buffer("beta", torch.ones(()), persistent=False)
        self.register_buffer("hidden", torch.tensor(mask_prob), persistent=False)

    @property
    def causal(self) -> bool:
        """Return whether the encoder uses no later observations."""
        return bool(self.encoder.causal)

    @property
    def window(self) -> int:
        """Return the number of newest observations that an agent keeps for the encoder."""
        return int(self.encoder.window)

    def encode(self, obs: Tensor, begins: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return means and variances `[T, N, D]` of q(z | y), from observations `[T, N, Dy]`.

        Args:
            begins: rows where another trajectory starts, `[T, N]`; the first row alone if None.
        """
        if begins is None:
            begins = torch.zeros(obs.shape[:2], dtype=torch.bool, device=obs.device)
            begins[0] = True
        return self.encoder(obs, begins)

    def decode(self, latent: Tensor) -> Tensor:
        """Return the expected observation."""
        return self.decoder(latent)

    def init_bias_(self, obs: Tensor, counts: Tensor) -> None:
        """Initialise the decoder's bias with the mean observation, the same on every rank.

        Args:
            obs: `[..., Dy]`.
            counts: `[...]`, which observations are valid.
        """
        total = torch.where(counts.unsqueeze(-1), obs, 0.0).flatten(0, -2).sum(0)
        number = all_reduce_sum(counts.sum())
        if number:
            self.decoder.init_bias_(all_reduce_sum(total).unsqueeze(0) / number)

    def init_linear_(self, obs: Tensor, box: ObservationBox | None = None) -> None:
        """Set encoder and decoder by probabilistic PCA of observations `[M, Dy]`.

        Latent states have unit variance. With a box of known bounds, and dynamics on a grid, they are scaled so that
        the box spans the grid's.

        Raises: ConfigurationError for other than a linear encoder and decoder, for too few observations, and if their
            mean lies outside the box.
        """
        if not (hasattr(self.encoder, "init_linear_") and hasattr(self.decoder, "init_linear_")):
            raise ConfigurationError("A linear initialisation needs an MLPEncoder and a LinearDecoder.")
        try:
            linear = probabilistic_pca(obs.double(), int(self.dynamics.dimensions))
            if box is not None and not box.grows and hasattr(self.dynamics, "low"):
                extent = box_extent(linear, *(bound.double() for bound in box.bounds))
                linear = rescale(linear, *extent, (self.dynamics.low.double(), self.dynamics.high.double()))
            self.encoder.init_linear_(state_sensor(linear))
            self.decoder.init_linear_(linear)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error

    def update_schedules(self, progress: float) -> None:
        """Set beta, and the probability of hidden rows, for the progress of the run."""
        phase = (progress * self.cycles) % 1.0 if progress < 1 else 1.0
        beta = 1.0 if self.warm_up == 0 else min(1.0, phase / self.warm_up)
        self.beta.fill_(beta)
        self.hidden.fill_(self.mask_prob if beta == 1 else 0.0)

    def draws(self, contiguous: Tensor, generator: torch.Generator) -> Draws:
        """Draw the random numbers of `loss`, for sequences of the shape of `contiguous`, `[L, N]`.

        Raises: ConfigurationError if the sequences are shorter than `overshooting_steps`.
        """
        (steps, rows), horizon = contiguous.shape, len(self.weights)
        if steps < horizon:
            raise ConfigurationError(
                f"The latent model's overshooting_steps is {horizon}, but sequences have {steps} steps: raise"
                " data.sequence_length."
            )

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, rows, self.dynamics.dimensions, generator=generator, device=generator.device)

        hidden = torch.rand(steps + 1, rows, generator=generator, device=generator.device)
        states, gaps = normal(self.samples, steps + 1), normal(self.samples, steps)
        return Draws(states, gaps, normal(horizon - 1, self.samples, steps), hidden)

    def loss(self, obs: Tensor, action: Tensor, contiguous: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
        """Return the negative bound, in nats per row, and the log-likelihood and KL per row and beta, `[3]`.

        Args:
            obs: `[L+1, N, Dy]`.
            action: `[L, N, A]`.
            contiguous: `[L, N]`, steps that count.
            draws: random numbers of this update.
        """
        terms = self.terms(obs, action, contiguous, draws)
        rows = terms.rows.clamp(min=1)
        divergence = (terms.initial + terms.transition) / rows
        measured = torch.stack([terms.log_likelihood / rows, divergence, self.beta]).detach()
        return -terms.bound(self.beta), measured

    def terms(self, obs: Tensor, action: Tensor, contiguous: Tensor, draws: Draws) -> Terms:
        """Return the terms of the bound; arguments are those of `loss`."""
        counts, begins = valid_rows(contiguous)
        posterior = StatePosterior(*self.encode(obs, begins | ~counts))
        control, variance = self.action_encoder(action), self.dynamics.variance
        states, seen = sample(*posterior, draws.states), None
        if self.mask_prob:
            seen = observed_rows(draws.hidden, contiguous, self.hidden)
            gaps = torch.zeros_like(draws.gaps) if self.mask_with_mean else variance.sqrt() * draws.gaps
            states = fill_masked_states(states, seen, control, self.dynamics.members, gaps)
        later = StatePosterior(*(part.detach() for part in posterior)) if self.detach_multi_step else None
        likelihood = self.decoder.log_likelihood(states, obs).mean(0)
        transition = transition_terms(
            states,
            posterior,
            control,
            contiguous,
            self.dynamics.members,
            variance,
            self.weights,
            draws.paths,
            seen=seen,
            later=later,
        )
        fitted = torch.where(counts, likelihood, 0.0).sum()
        return Terms(fitted, initial_term(posterior, begins), transition, counts.sum())
