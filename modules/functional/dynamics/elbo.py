"""The evidence lower bound of a latent dynamical model whose prior looks several steps ahead.

Time comes first: observations and posterior `[T, N, D]`, samples of a state `[S, T, N, D]`. A step l goes from row l to
row l + 1 and counts where `joined[l]`; rows that no counted step touches do not count either.

Sources: Krishnan et al. 2017, arXiv:1609.09869, for one step; Hafner et al. 2019, arXiv:1811.04551, section 4, for
several (latent overshooting): of K steps it bounds the evidence of a model that predicts as far, of one step the
evidence itself.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from modules.functional.dynamics.gaussian import divergence, sample

LONGEST_GAP = 2
"""Steps in a row that a temporal mask hides, at most."""

Transition = Callable[[Tensor, Tensor], Tensor]
"""(states [..., D], encoded inputs [..., D]) -> means of the next states [E, ..., D], by each of E models."""


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
    row = torch.arange(len(hidden), device=hidden.device).unsqueeze(1)
    since = row - torch.where(hidden, 0, row).cummax(0).values
    return ~hidden | (since % (LONGEST_GAP + 1) == 0)


def filled(
    states: Float[Tensor, "S T N D"],
    seen: Bool[Tensor, "T N"],
    control: Float[Tensor, "L N D"],
    transition: Transition,
    noise: Float[Tensor, "S L N D"],
) -> Float[Tensor, "S T N D"]:
    """States with the hidden rows replaced by what the dynamics (an ensemble's mean) make of the row before.

    After k passes every gap of up to k rows is right, so `LONGEST_GAP` passes do, each over all rows at once.

    Args:
        noise: what a transition adds to its mean; zero for the mean itself.
    """
    keep, result = seen[1:].unsqueeze(-1), states
    for _ in range(LONGEST_GAP):
        moved = transition(result[:, :-1], control).mean(0) + noise
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
    noise: Float[Tensor, "K-1 S L N D"],
    seen: Bool[Tensor, "T N"] | None = None,
    later: Posterior | None = None,
) -> Float[Tensor, ""]:
    """sum_t sum_k w_k KL( q(z_{t+k}) || N(m_k(t), variance) ), mean over samples and models, summed over rows.

    m_k(t) is one step from a state that was rolled out from the sample of z_t for k - 1 steps, noise included, under
    the true inputs. By convexity the mean over such rollouts is no less than the KL to the k-step prior itself.
    An ensemble's members are compared one by one, each from where all of them, by their mean, went before.

    Near the beginning of a trajectory no prior looks back K steps. The longest that there is takes the weights of those
    that are missing, so that every row but the first pays with weight 1, whatever K.

    Args:
        states: samples of every row.   posterior: what they were drawn from.
        variance: of one step's noise.   noise: standard normal, of the rollouts.
        seen: rows whose KL counts; None counts all.
        later: the posterior that steps further ahead than one are compared with; None takes `posterior`.

    Raises: ValueError if there are fewer steps than weights.
    """
    horizon, (_, begins) = len(weights), rows_that_count(joined)
    if horizon > len(joined):
        raise ValueError(f"transition_terms: priors of {horizon} steps do not fit into {len(joined)} steps.")
    total, known, path = states.new_zeros(()), joined, states[:, :-1]
    missing = weights.flip(0).cumsum(0).flip(0)
    for k, (weight, whole) in enumerate(zip(weights, missing, strict=True), start=1):
        means = transition(path, control[k - 1 :])
        target = posterior if k == 1 or later is None else later
        each = divergence(target.mean[k:], target.variance[k:], means, variance).sum(-1).mean((0, 1))
        counts = known if seen is None else known & seen[k:]
        total = total + torch.where(counts, torch.where(begins[:-k], whole, weight) * each, 0.0).sum()
        if k < horizon:
            path = sample(means.mean(0)[:, :-1], variance, noise[k - 1, :, :-k])
            known = known[:-1] & joined[k:]
    return total


def initial_term(posterior: Posterior, begins: Bool[Tensor, "T N"]) -> Float[Tensor, ""]:
    """KL( q(z) || N(0, 1) ) where trajectories begin, summed over rows and dimensions."""
    mean, variance = posterior
    each = divergence(mean, variance, torch.zeros_like(mean), torch.ones_like(mean)).sum(-1)
    return torch.where(begins, each, 0.0).sum()
