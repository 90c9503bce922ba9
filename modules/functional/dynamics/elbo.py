"""Evidence lower bound (ELBO) of a latent dynamical model whose prior predicts several steps ahead.

Time comes first: observations and posterior `[T, N, D]`, samples of a state `[S, T, N, D]`. Step l leads from row l to
row l + 1 and counts where `contiguous[l]`; rows that no counted step touches do not count either.

Sources: Krishnan et al. 2017, arXiv:1609.09869, for one step; Hafner et al. 2019, arXiv:1811.04551, section 4, for
several (latent overshooting): with K steps it bounds the evidence of a K-step model, with one step the evidence itself.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from modules.functional.dynamics.gaussian import divergence, sample

LONGEST_GAP = 2
"""Largest number of consecutive rows that a temporal mask hides."""

Transition = Callable[[Tensor, Tensor], Tensor]
"""(states [..., D], encoded inputs [..., D]) -> means of the next states [E, ..., D], one for each of E models."""


class StatePosterior(NamedTuple):
    """Posterior q(z_t | y), independent normals: mean and variance, `[T, N, D]`."""

    mean: Tensor
    variance: Tensor


class Terms(NamedTuple):
    """Terms of the bound in nats, summed over the counted rows, 0-d; and the number of these rows.

    initial: KL of the first state of every trajectory to the standard normal.
    transition: weighted KLs to the priors of 1 to K steps ahead.
    """

    log_likelihood: Tensor
    initial: Tensor
    transition: Tensor
    rows: Tensor

    def bound(self, beta: float | Tensor = 1.0) -> Tensor:
        """Return the lower bound per row, with the transitions' KL weighted by beta."""
        return (self.log_likelihood - self.initial - beta * self.transition) / self.rows.clamp(min=1)


def step_weights(horizon: int, decay: float) -> Float[Tensor, "K"]:
    """Return w_k = decay^(k-1) / sum, normalised so that K sets how far the prior predicts, not the weight of the KL.

    Raises: ValueError unless K is at least 1 and the decay in (0, 1].
    """
    if horizon < 1 or not 0 < decay <= 1:
        raise ValueError(f"step_weights cannot have K {horizon} and decay {decay}: at least 1, and in (0, 1].")
    weights = decay ** torch.arange(horizon, dtype=torch.float64)
    return (weights / weights.sum()).float()


def valid_rows(contiguous: Bool[Tensor, "L N"]) -> tuple[Bool[Tensor, "T N"], Bool[Tensor, "T N"]]:
    """Return the rows that a counted step touches, and those of them without a predecessor (starts of trajectories)."""
    none = torch.zeros_like(contiguous[:1])
    follows, leads = torch.cat([none, contiguous]), torch.cat([contiguous, none])
    return follows | leads, leads & ~follows


def observed_rows(
    uniform: Float[Tensor, "T N"], contiguous: Bool[Tensor, "L N"], probability: float | Tensor
) -> Bool[Tensor, "T N"]:
    """Return the rows whose posterior may be sampled; each of the others is hidden with the given probability.

    Never hidden: a row without a predecessor, and the row after `LONGEST_GAP` hidden ones.
    """
    follows = torch.cat([torch.zeros_like(contiguous[:1]), contiguous])
    hidden = (uniform < probability) & follows
    row = torch.arange(len(hidden), device=hidden.device).unsqueeze(1)
    since = row - torch.where(hidden, 0, row).cummax(0).values
    return ~hidden | (since % (LONGEST_GAP + 1) == 0)


def fill_masked_states(
    states: Float[Tensor, "S T N D"],
    seen: Bool[Tensor, "T N"],
    control: Float[Tensor, "L N D"],
    transition: Transition,
    noise: Float[Tensor, "S L N D"],
) -> Float[Tensor, "S T N D"]:
    """Replace the hidden rows by the prediction of the dynamics (an ensemble's mean) from the row before.

    After k passes every gap of up to k rows is filled, so `LONGEST_GAP` passes suffice, each over all rows at once.

    Args:
        noise: added to the mean of a transition; zero for the mean itself.
    """
    keep, result = seen[1:].unsqueeze(-1), states
    for _ in range(LONGEST_GAP):
        moved = transition(result[:, :-1], control).mean(0) + noise
        result = torch.cat([states[:, :1], torch.where(keep, states[:, 1:], moved)], dim=1)
    return result


def transition_terms(
    states: Float[Tensor, "S T N D"],
    posterior: StatePosterior,
    control: Float[Tensor, "L N D"],
    contiguous: Bool[Tensor, "L N"],
    transition: Transition,
    variance: Float[Tensor, "D"],
    weights: Float[Tensor, "K"],
    noise: Float[Tensor, "K-1 S L N D"],
    seen: Bool[Tensor, "T N"] | None = None,
    later: StatePosterior | None = None,
) -> Float[Tensor, ""]:
    """Compute sum_t sum_k w_k KL( q(z_{t+k}) || N(m_k(t), variance) ), mean over samples and models, summed over rows.

    m_k(t) is one step from a state that was rolled out from the sample of z_t for k - 1 steps, noise included, under
    the true inputs. By convexity the mean over such rollouts is no less than the KL to the k-step prior itself.
    The members of an ensemble are compared one by one, each from the state that their mean predicts.

    Near the start of a trajectory fewer than K steps precede a row. The longest available prior then takes the weights
    of the missing ones, so that every row but the first has total weight 1, whatever K.

    Args:
        states: samples of every row.
        posterior: distribution that they were drawn from.
        variance: of the noise of one step.
        noise: standard normal, of the rollouts.
        seen: rows whose KL counts; None counts all.
        later: posterior that priors of two and more steps are compared with; None takes `posterior`.

    Raises: ValueError if there are fewer steps than weights.
    """
    horizon, (_, begins) = len(weights), valid_rows(contiguous)
    if horizon > len(contiguous):
        raise ValueError(f"transition_terms: priors of {horizon} steps do not fit into {len(contiguous)} steps.")
    total, known, path = states.new_zeros(()), contiguous, states[:, :-1]
    missing = weights.flip(0).cumsum(0).flip(0)
    for k, (weight, whole) in enumerate(zip(weights, missing, strict=True), start=1):
        means = transition(path, control[k - 1 :])
        target = posterior if k == 1 or later is None else later
        each = divergence(target.mean[k:], target.variance[k:], means, variance).sum(-1).mean((0, 1))
        counts = known if seen is None else known & seen[k:]
        total = total + torch.where(counts, torch.where(begins[:-k], whole, weight) * each, 0.0).sum()
        if k < horizon:
            path = sample(means.mean(0)[:, :-1], variance, noise[k - 1, :, :-k])
            known = known[:-1] & contiguous[k:]
    return total


def initial_term(posterior: StatePosterior, begins: Bool[Tensor, "T N"]) -> Float[Tensor, ""]:
    """Compute KL( q(z) || N(0, 1) ) at the starts of trajectories, summed over rows and dimensions."""
    mean, variance = posterior
    each = divergence(mean, variance, torch.zeros_like(mean), torch.ones_like(mean)).sum(-1)
    return torch.where(begins, each, 0.0).sum()
