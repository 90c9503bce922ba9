"""A latent dynamical model: what is observed is encoded, what goes on is latent, and both are learned together."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from datamodules.core.errors import UsageError
from modules.functional.dynamics.elbo import (
    Posterior,
    Terms,
    filled,
    initial_term,
    rows_that_count,
    seen_rows,
    step_weights,
    transition_terms,
)
from modules.functional.dynamics.gaussian import sample
from modules.optim.distributed import summed


class Draws(NamedTuple):
    """The randomness of one loss.

    states: standard normal `[S, T, N, D]`.   gaps: of transitions over hidden rows `[S, L, N, D]`.
    paths: of rollouts `[K-1, S, L, N, D]`.   hidden: uniforms `[T, N]`.
    """

    states: Tensor
    gaps: Tensor
    paths: Tensor
    hidden: Tensor


class LatentModel(nn.Module):
    """z_{t+1} = z_t + dt (f(z_t) + B u_t) + noise,   y_t ~ p(y | z_t),   learned by a k-step evidence lower bound.

    L = E_q sum_t log p(y_t | z_t) - beta sum_k w_k KL_k - KL(q(z_1) || N(0, 1)),   w_k ~ decay^(k-1), sum 1

    KL_k compares the posterior of a state with its prior from k steps before (`functional.elbo.transition_terms`).
    Rows that a temporal mask hides are filled in by the dynamics: the likelihood there trains f through the decoder.

    Args:
        encoder: q(z | y) (`modules.networks.latent.encoders`).
        decoder: p(y | z) (`modules.networks.latent.decoders`).
        dynamics: f and the process noise (`modules.networks.latent.dynamics`).
        action_encoder: B (`modules.networks.latent.action_encoders`).
        samples: S, drawn of the posterior.
        horizon: K, steps ahead that the prior predicts.
        decay: factor between the weights of one of these steps and the next.
        hide: probability that a row is hidden; 0 while beta warms up.
        hide_mean: a hidden row takes the mean of the transition instead of a draw.
        detach_later: KLs of two and more steps do not move the posterior.
        warm_up: share of the run, or of a cycle, in which beta rises from 0 to 1.
        cycles: how often beta does so in a run.

    Raises: ValueError if a number is out of range.

    Source: Krishnan et al. 2017, arXiv:1609.09869, for the bound of one step; Hafner et al. 2019, arXiv:1811.04551,
    section 4, for priors of several; Fu et al. 2019, arXiv:1903.10145, for cycles.
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
        horizon: int = 5,
        decay: float = 0.8,
        hide: float = 0.2,
        hide_mean: bool = False,
        detach_later: bool = False,
        warm_up: float = 0.2,
        cycles: int = 1,
    ):
        super().__init__()
        if min(samples, cycles) < 1 or not (0 <= hide < 1 and 0 <= warm_up <= 1):
            raise ValueError(
                f"LatentModel cannot have samples {samples}, cycles {cycles}, hide {hide} and warm_up {warm_up}: the"
                " first two must be at least 1, hide in [0, 1) and warm_up in [0, 1]."
            )
        self.encoder, self.decoder, self.dynamics, self.action_encoder = encoder, decoder, dynamics, action_encoder
        self.samples, self.hide, self.hide_mean, self.detach_later = samples, hide, hide_mean, detach_later
        self.warm_up, self.cycles = warm_up, cycles
        self.register_buffer("weights", step_weights(horizon, decay), persistent=False)
        self.register_buffer("beta", torch.ones(()), persistent=False)
        self.register_buffer("hidden", torch.tensor(hide), persistent=False)

    @property
    def causal(self) -> bool:
        """Whether the encoder looks at no later observations."""
        return bool(self.encoder.causal)

    @property
    def window(self) -> int:
        """Newest observations that an agent keeps for the encoder."""
        return int(self.encoder.window)

    def encode(self, obs: Tensor, begins: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Means and variances `[T, N, D]` of q(z | y), from observations `[T, N, Dy]`.

        Args:
            begins: rows where another trajectory starts, `[T, N]`; the first row alone if None.
        """
        if begins is None:
            begins = torch.zeros(obs.shape[:2], dtype=torch.bool, device=obs.device)
            begins[0] = True
        return self.encoder(obs, begins)

    def decode(self, latent: Tensor) -> Tensor:
        """The observation that is to be expected."""
        return self.decoder(latent)

    def start_(self, obs: Tensor, counts: Tensor) -> None:
        """Let the decoder show what is seen on average, the same on every rank.

        Args:
            obs: `[..., Dy]`.   counts: `[...]`, observations that were made.
        """
        total = torch.where(counts.unsqueeze(-1), obs, 0.0).flatten(0, -2).sum(0)
        number = summed(counts.sum())
        if number:
            self.decoder.start_(summed(total).unsqueeze(0) / number)

    def schedule_(self, progress: float) -> None:
        """Set beta, and how many rows are hidden, for a share of the run."""
        phase = (progress * self.cycles) % 1.0 if progress < 1 else 1.0
        beta = 1.0 if self.warm_up == 0 else min(1.0, phase / self.warm_up)
        self.beta.fill_(beta)
        self.hidden.fill_(self.hide if beta == 1 else 0.0)

    def draws(self, joined: Tensor, generator: torch.Generator) -> Draws:
        """What `loss` draws with, for pieces of the shape of `joined`, `[L, N]`.

        Raises: UsageError if the pieces are shorter than what the prior is asked.
        """
        (steps, rows), horizon = joined.shape, len(self.weights)
        if steps < horizon:
            raise UsageError(
                f"The latent model's horizon is {horizon} steps, but pieces have {steps}: raise data.chunk."
            )

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, rows, self.dynamics.dimensions, generator=generator, device=generator.device)

        hidden = torch.rand(steps + 1, rows, generator=generator, device=generator.device)
        states, gaps = normal(self.samples, steps + 1), normal(self.samples, steps)
        return Draws(states, gaps, normal(horizon - 1, self.samples, steps), hidden)

    def loss(self, obs: Tensor, action: Tensor, joined: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
        """The bound's negative, in nats a row, and log-likelihood and KL a row and beta, `[3]`.

        Args:
            obs: `[L+1, N, Dy]`.   action: `[L, N, A]`.   joined: `[L, N]`, steps that count.   draws: of this update.
        """
        terms = self.terms(obs, action, joined, draws)
        rows = terms.rows.clamp(min=1)
        divergence = (terms.initial + terms.transition) / rows
        measured = torch.stack([terms.log_likelihood / rows, divergence, self.beta]).detach()
        return -terms.bound(self.beta), measured

    def terms(self, obs: Tensor, action: Tensor, joined: Tensor, draws: Draws) -> Terms:
        """The terms of the bound; arguments are those of `loss`."""
        counts, begins = rows_that_count(joined)
        posterior = Posterior(*self.encode(obs, begins | ~counts))
        control, variance = self.action_encoder(action), self.dynamics.variance
        states, seen = sample(*posterior, draws.states), None
        if self.hide:
            seen = seen_rows(draws.hidden, joined, self.hidden)
            gaps = torch.zeros_like(draws.gaps) if self.hide_mean else variance.sqrt() * draws.gaps
            states = filled(states, seen, control, self.dynamics.members, gaps)
        later = Posterior(*(part.detach() for part in posterior)) if self.detach_later else None
        likelihood = self.decoder.log_likelihood(states, obs).mean(0)
        transition = transition_terms(
            states,
            posterior,
            control,
            joined,
            self.dynamics.members,
            variance,
            self.weights,
            draws.paths,
            seen=seen,
            later=later,
        )
        fitted = torch.where(counts, likelihood, 0.0).sum()
        return Terms(fitted, initial_term(posterior, begins), transition, counts.sum())
