"""Planners: sampling-based search over action sequences, for all agents and candidates at once.

A planner has no model: it is given a function that scores candidates. Actions lie in [-1, 1]. Its state is the warm
start of the next step.
"""

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

State = dict[str, Tensor]
Score = Callable[[Tensor], Tensor]
"""Maps candidate actions `[B, N, H, A]` to their scores `[B, N]`; more is better."""


class Planner(Protocol):
    """Interface of planners of action sequences.

    horizon: H, the steps of a plan.
    """

    horizon: int

    def noise_size(self, actions: int) -> int:
        """Return the number of standard normals that a plan of `actions` dimensions consumes."""
        ...

    def initial_state(self, batch: int, actions: int) -> State:
        """Return the state before the first plan, every leaf `[B, ...]`."""
        ...

    def __call__(self, score: Score, state: State, noise: Tensor) -> tuple[Tensor, State]:
        """Return plans `[B, H, A]`, of which the first action is executed, and the state for the next step.

        Args:
            noise: `[B, noise_size]`, standard normal.
        """
        ...


class SamplingPlanner(nn.Module):
    """Base of sampling planners: correlated candidates around a plan, refined iteratively, shifted every step.

    Args:
        horizon: H, steps of a plan.
        candidates: N of the first iteration.
        iterations: rounds of sampling and refining.
        decay: factor by which each iteration has fewer candidates than the one before.
        elites: number of best candidates that an iteration is fitted to.
        momentum: share of the old mean and standard deviation in the refined ones.
        std: standard deviation of the first iteration, in half-ranges of the action.
        correlation: correlation of the noise of consecutive steps (AR(1)), in [0, 1); 0 is white.
        colour: exponent beta of a power spectrum 1/f^beta to use instead of `correlation`; null for AR(1).

    Raises: ValueError if a value is out of range.
    """

    filter: Tensor

    def __init__(
        self,
        horizon: int = 15,
        candidates: int = 128,
        iterations: int = 3,
        decay: float = 1.0,
        elites: int = 13,
        momentum: float = 0.1,
        std: float = 0.5,
        correlation: float = 0.8,
        colour: float | None = None,
    ):
        super().__init__()
        check(horizon=horizon, candidates=candidates, iterations=iterations, elites=elites, std=std, decay=decay)
        self.horizon, self.momentum, self.std = horizon, momentum, std
        self.counts = [max(round(candidates / decay**i), 2 * elites if decay > 1 else 1) for i in range(iterations)]
        if elites > min(self.counts):
            raise ValueError(f"{type(self).__name__}: elites is {elites}, more than the {min(self.counts)} candidates.")
        self.elites = elites
        covariance = autoregressive(horizon, correlation) if colour is None else power_law(horizon, colour)
        self.register_buffer("filter", torch.linalg.cholesky(covariance).float(), persistent=False)

    def noise_size(self, actions: int) -> int:
        """Return the number of standard normals for all candidates of all iterations."""
        return sum(self.counts) * self.horizon * actions

    def initial_state(self, batch: int, actions: int) -> State:
        """Return a plan of zero actions."""
        return {"plan": torch.zeros(batch, self.horizon, actions, device=self.filter.device)}

    def forward(self, score: Score, state: State, noise: Tensor) -> tuple[Tensor, State]:
        """Refine the previous plan, shifted by a step (see `Planner`)."""
        mean = shift_plan(state["plan"])
        std = torch.full_like(mean, self.std)
        for piece in self.pieces(noise, mean.shape[-1]):
            candidates = self.candidates(piece, mean, std)
            mean, std = self.refit(candidates, score(candidates), mean, std)
        return mean, {"plan": mean}

    def pieces(self, noise: Tensor, actions: int) -> tuple[Tensor, ...]:
        """Split the noise by iteration."""
        return noise.split([count * self.horizon * actions for count in self.counts], dim=-1)

    def candidates(self, noise: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        """Return candidates `[B, N, H, A]` of an iteration, correlated over the horizon, from its part of the noise."""
        normal = self.filter @ noise.unflatten(-1, (-1, *mean.shape[1:]))
        return (mean.unsqueeze(1) + std.unsqueeze(1) * normal).clamp(-1, 1)

    def refit(self, candidates: Tensor, scores: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """Return the next iteration's mean and standard deviation `[B, H, A]`."""
        raise NotImplementedError


class RandomShooting(SamplingPlanner):
    """One iteration of candidates around zero; the best is the plan.

    Args: as `SamplingPlanner`; a wide `std` spreads the candidates over the whole range.
    """

    def __init__(self, horizon: int = 15, candidates: int = 1024, std: float = 1.0, correlation: float = 0.8):
        super().__init__(horizon, candidates, 1, elites=1, std=std, correlation=correlation)

    def forward(self, score: Score, state: State, noise: Tensor) -> tuple[Tensor, State]:
        """Return the best of the candidates; the previous plan has no effect."""
        return super().forward(score, {"plan": torch.zeros_like(state["plan"])}, noise)

    def refit(self, candidates: Tensor, scores: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best candidate."""
        return best(candidates, scores, 1)[0].squeeze(1), std


class CEM(SamplingPlanner):
    """Cross-entropy method: mean and standard deviation are fitted to the elites; the last mean is the plan.

    Args: as `SamplingPlanner`.

    Source: Rubinstein 1999; for planning Chua et al. 2018, arXiv:1805.12114, section 5.
    """

    def refit(self, candidates: Tensor, scores: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of the elites, mixed with the old ones."""
        return self.fitted(best(candidates, scores, self.elites)[0], mean, std)

    def fitted(self, elites: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of elites `[B, K, H, A]`, mixed with the old ones."""
        mean = torch.lerp(elites.mean(1), mean, self.momentum)
        return mean, torch.lerp(elites.std(1, correction=0), std, self.momentum)


class ICEM(CEM):
    """Improved CEM: elites are reused in the next iteration and step, the mean is tried, the plan is the best one.

    Args:
        keep: fraction of the elites reused as candidates of the next iteration and, shifted, of the next step.

    Source: Pinneri et al. 2020, arXiv:2008.06389, algorithm 1.
    """

    def __init__(
        self,
        horizon: int = 15,
        candidates: int = 128,
        iterations: int = 3,
        decay: float = 1.25,
        elites: int = 10,
        momentum: float = 0.1,
        std: float = 0.5,
        correlation: float = 0.8,
        colour: float | None = 2.0,
        keep: float = 0.3,
    ):
        super().__init__(horizon, candidates, iterations, decay, elites, momentum, std, correlation, colour)
        self.num_kept_elites = max(1, round(keep * elites))

    def initial_state(self, batch: int, actions: int) -> State:
        """Return a plan and elites of zero actions."""
        plan = super().initial_state(batch, actions)["plan"]
        return {"plan": plan, "elites": plan.unsqueeze(1).repeat(1, self.num_kept_elites, 1, 1)}

    def forward(self, score: Score, state: State, noise: Tensor) -> tuple[Tensor, State]:
        """Refine the previous plan and elites, shifted by a step; return the best candidate of all iterations."""
        mean, kept = shift_plan(state["plan"]), shift_plan(state["elites"])
        std, pieces = torch.full_like(mean, self.std), self.pieces(noise, mean.shape[-1])
        elites, scores = kept, torch.full(kept.shape[:2], -math.inf, device=kept.device)
        for i, piece in enumerate(pieces):
            tried = [kept] if i == 0 else []
            tried += [mean.unsqueeze(1)] if i == len(pieces) - 1 else []
            new = torch.cat([self.candidates(piece, mean, std), *tried], dim=1)
            candidates = torch.cat([new, elites[:, : self.num_kept_elites]], dim=1)
            values = torch.cat([score(new), scores[:, : self.num_kept_elites]], dim=1)
            elites, scores = best(candidates, values, self.elites)
            mean, std = self.fitted(elites, mean, std)
        return elites[:, 0], {"plan": mean, "elites": elites[:, : self.num_kept_elites]}


class MPPI(SamplingPlanner):
    """Model predictive path integral control: the plan is the mean of all candidates weighted by exp(score).

    Args:
        temperature: temperature of the weights, in standard deviations of the scores.

    Source: Williams et al. 2017, "Information theoretic MPC", algorithm 2, without its quadratic cost of control.
    """

    def __init__(
        self,
        horizon: int = 15,
        candidates: int = 256,
        iterations: int = 1,
        std: float = 0.5,
        correlation: float = 0.8,
        colour: float | None = None,
        temperature: float = 0.3,
    ):
        super().__init__(horizon, candidates, iterations, elites=1, std=std, correlation=correlation, colour=colour)
        check(temperature=temperature)
        self.temperature = temperature

    def refit(self, candidates: Tensor, scores: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weighted mean, and the standard deviation unchanged."""
        scale = self.temperature * scores.std(1, keepdim=True, correction=0) + 1e-6
        weights = ((scores - scores.amax(1, keepdim=True)) / scale).softmax(1)
        return torch.einsum("bn,bnha->bha", weights, candidates), std


def best(candidates: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` best candidates `[B, count, H, A]` and their scores, the best first; NaN counts as worst."""
    values, index = scores.nan_to_num(nan=-math.inf).topk(count, dim=1)
    return candidates.gather(1, index[..., None, None].expand(-1, -1, *candidates.shape[2:])), values


def shift_plan(plan: Tensor) -> Tensor:
    """Shift a plan `[..., H, A]` by one step; its last action is repeated."""
    return torch.cat([plan[..., 1:, :], plan[..., -1:, :]], dim=-2)


def autoregressive(steps: int, correlation: float) -> Tensor:
    """Return the covariance `[H, H]` of a stationary AR(1) process of unit variance, in float64.

    Raises: ValueError unless the correlation lies in [0, 1).
    """
    if not 0 <= correlation < 1:
        raise ValueError(f"correlation is {correlation}; it must lie in [0, 1).")
    lag = torch.arange(steps, dtype=torch.float64)
    return correlation ** (lag[:, None] - lag).abs()


def power_law(steps: int, beta: float) -> Tensor:
    """Return the covariance `[H, H]` of noise of unit variance whose power spectrum falls as 1/f^beta, in float64.

    The lowest frequency is 1/H; below it the spectrum is flat, so that the mean over the horizon varies too.

    Source: Timmer & Koenig 1995, "On generating power law noise"; in covariance form, one product colours any noise.
    """
    frequency = torch.fft.rfftfreq(2 * steps, dtype=torch.float64).clamp(min=1 / steps)
    autocovariance = torch.fft.irfft(frequency**-beta)[:steps]
    lag = torch.arange(steps)
    covariance = (autocovariance / autocovariance[0])[(lag[:, None] - lag).abs()]
    return covariance + 1e-9 * torch.eye(steps, dtype=torch.float64)


def check(**values: float) -> None:
    """Check that every value is positive.

    Raises: ValueError unless every value is positive.
    """
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} is {value}; it must be positive.")
