"""The evidence lower bound of a latent dynamical model whose prior looks several steps ahead.

Time comes first: observations and posterior `[T, N, D]`, samples of a state `[S, T, N, D]`. A step l goes from row l to
row l + 1 and counts where `joined[l]`; rows that no counted step touches do not count either.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from modules.functional.gaussian import divergence, sample

LONGEST_GAP = 5
"""Steps in a row that a temporal mask hides, at most."""

Transition = Callable[[Tensor, Tensor], Tensor]
"""(states [..., D], encoded inputs [..., D]) -> means of the next states [..., D]."""


class Posterior(NamedTuple):
    """q(z_t | y), independent normals: mean and variance, `[T, N, D]`."""

    mean: Tensor
    variance: Tensor


class Terms(NamedTuple):
    """The bound's terms in nats, summed over the rows that count, 0-d; and how many rows these are.

    initial: KL of the first state of every trajectory to the standard normal.
    transition: weighted KLs to the priors of 1 to K steps ahead.
    """

    log_likelihood: Tensor
    initial: Tensor
    transition: Tensor
    rows: Tensor

    def bound(self, beta: float | Tensor = 1.0) -> Tensor:
        """The lower bound a row, with the transitions' KL weighted by beta."""
        return (self.log_likelihood - self.initial - beta * self.transition) / self.rows.clamp(min=1)


def step_weights(horizon: int, decay: float) -> Float[Tensor, "K"]:
    """w_k = decay^(k-1) / sum: normalised, so that K changes how far the prior looks and not how much it weighs.

    Raises: ValueError unless K is at least 1 and the decay in (0, 1].
    """
    if horizon < 1 or not 0 < decay <= 1:
        raise ValueError(f"step_weights cannot have K {horizon} and decay {decay}: at least 1, and in (0, 1].")
    weights = decay ** torch.arange(horizon, dtype=torch.float64)
    return (weights / weights.sum()).float()


def rows_that_count(joined: Bool[Tensor, "L N"]) -> tuple[Bool[Tensor, "T N"], Bool[Tensor, "T N"]]:
    """Rows that a counted step touches, and those of them that follow from none: where a trajectory begins."""
    none = torch.zeros_like(joined[:1])
    follows, leads = torch.cat([none, joined]), torch.cat([joined, none])
    return follows | leads, leads & ~follows


def seen_rows(
    uniform: Float[Tensor, "T N"], joined: Bool[Tensor, "L N"], probability: float | Tensor
) -> Bool[Tensor, "T N"]:
    """Which rows the posterior may be sampled at; the others, each with that probability, are hidden.

    Never hidden is a row that follows from none, and the one after `LONGEST_GAP` hidden ones.
    """
    follows = torch.cat([torch.zeros_like(joined[:1]), joined])
    hidden = (uniform < probability) & follows
    gap = torch.zeros_like(uniform[0], dtype=torch.int64)
    rows = []
    for row in hidden.unbind():
        now = row & (gap < LONGEST_GAP)
        gap = torch.where(now, gap + 1, 0)
        rows.append(~now)
    return torch.stack(rows)


def filled(
    states: Float[Tensor, "S T N D"],
    seen: Bool[Tensor, "T N"],
    control: Float[Tensor, "L N D"],
    transition: Transition,
    noise: Float[Tensor, "S L N D"],
) -> Float[Tensor, "S T N D"]:
    """States with the hidden rows replaced by what the dynamics make of the row before.

    After k passes every gap of up to k rows is right, so `LONGEST_GAP` passes do, each over all rows at once.

    Args:
        noise: what a transition adds to its mean; zero for the mean itself.
    """
    keep, result = seen[1:].unsqueeze(-1), states
    for _ in range(LONGEST_GAP):
        moved = transition(result[:, :-1], control) + noise
        result = torch.cat([states[:, :1], torch.where(keep, states[:, 1:], moved)], dim=1)
    return result


def transition_terms(
    states: Float[Tensor, "S T N D"],
    posterior: Posterior,
    control: Float[Tensor, "L N D"],
    joined: Bool[Tensor, "L N"],
    transition: Transition,
    variance: Float[Tensor, "D"],
    weights: Float[Tensor, "K"],
    noise: Float[Tensor, "K S L N D"],
    seen: Bool[Tensor, "T N"] | None = None,
    later: Posterior | None = None,
) -> Float[Tensor, ""]:
    """sum_k w_k sum_t KL( q(z_{t+k}) || N(m_k(t), variance) ), mean over samples, summed over rows and dimensions.

    m_k(t) is one step from a state that was rolled out from the sample of z_t for k - 1 steps, noise included, under
    the true inputs. By convexity the mean over such rollouts is no less than the KL to the k-step prior itself.

    Args:
        states: samples of every row.   posterior: what they were drawn from.
        variance: of one step's noise.   noise: standard normal, of the rollouts; its last step is not used.
        seen: rows whose KL counts; None counts all.
        later: the posterior that steps further ahead than one are compared with; None takes `posterior`.
    """
    total, known, path = states.new_zeros(()), torch.ones_like(joined), states[:, :-1]
    for k, weight in enumerate(weights, start=1):
        end = len(joined) - k + 1
        if end < 1:
            break
        mean = transition(path[:, :end], control[k - 1 :])
        known = known[:end] & joined[k - 1 :]
        target = posterior if k == 1 or later is None else later
        each = divergence(target.mean[k:], target.variance[k:], mean, variance).sum(-1).mean(0)
        counts = known if seen is None else known & seen[k:]
        total = total + weight * torch.where(counts, each, 0.0).sum()
        path = sample(mean, variance, noise[k - 1, :, :end])
    return total


def initial_term(posterior: Posterior, begins: Bool[Tensor, "T N"]) -> Float[Tensor, ""]:
    """KL( q(z) || N(0, 1) ) where trajectories begin, summed over rows and dimensions."""
    mean, variance = posterior
    each = divergence(mean, variance, torch.zeros_like(mean), torch.ones_like(mean)).sum(-1)
    return torch.where(begins, each, 0.0).sum()
