"""Planners: search over sequences of actions by sampling, for all agents and candidates at once.

A planner knows neither the model nor what is worth doing: it is given a function that scores candidates. It works in
units where every action lies in [-1, 1]. Its state is what it remembers from the last step, its warm start.
"""

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

State = dict[str, Tensor]
Score = Callable[[Tensor], Tensor]
"""Actions `[B, N, H, A]` to how good each candidate is `[B, N]`; more is better."""


class Planner(Protocol):
    """Chooses sequences of actions.

    horizon: H, the steps of a plan.
    """

    horizon: int

    def noise_size(self, actions: int) -> int:
        """Standard normals that a plan of `actions` dimensions consumes."""
        ...

    def initial_state(self, batch: int, actions: int) -> State:
        """What to remember before the first plan, every leaf `[B, ...]`."""
        ...

    def __call__(self, score: Score, state: State, noise: Tensor) -> tuple[Tensor, State]:
        """Plans `[B, H, A]`, of which the first action is to be taken, and what to remember for the next step.

        Args:
            noise: `[B, noise_size]`, standard normal.
        """
        ...


class SamplingPlanner(nn.Module):
    """What sampling planners share: correlated candidates around a plan, refined a few times, shifted every step.

    Args:
        horizon: H, steps of a plan.
        candidates: N of the first iteration.
        iterations: rounds of sampling and refining.
        decay: each iteration has so many times fewer candidates than the one before.
        elites: candidates that an iteration learns from.
        momentum: share of the old mean and deviation that a refinement keeps.
        std: of the first iteration, in half-ranges of the action.
        correlation: of one step's noise with the next one's (AR(1)), in [0, 1); 0 is white.
        colour: exponent beta of a power spectrum 1/f^beta to use instead of `correlation`; null for AR(1).

    Raises: ValueError for values that cannot be.
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
        """Standard normals for all candidates of all iterations."""
        return sum(self.counts) * self.horizon * actions

    def initial_state(self, batch: int, actions: int) -> State:
        """A plan to do nothing."""
        return {"plan": torch.zeros(batch, self.horizon, actions, device=self.filter.device)}

    def forward(self, score: Score, state: State, noise: Tensor) -> tuple[Tensor, State]:
        """Refine the last plan, shifted by a step (see `Planner`)."""
        mean = shifted(state["plan"])
        std = torch.full_like(mean, self.std)
        for piece in self.pieces(noise, mean.shape[-1]):
            candidates = self.candidates(piece, mean, std)
            mean, std = self.refined(candidates, score(candidates), mean, std)
        return mean, {"plan": mean}

    def pieces(self, noise: Tensor, actions: int) -> tuple[Tensor, ...]:
        """Every iteration's part of the noise."""
        return noise.split([count * self.horizon * actions for count in self.counts], dim=-1)

    def candidates(self, noise: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        """An iteration's candidates `[B, N, H, A]`, correlated over the horizon, from its part of the noise."""
        normal = self.filter @ noise.unflatten(-1, (-1, *mean.shape[1:]))
        return (mean.unsqueeze(1) + std.unsqueeze(1) * normal).clamp(-1, 1)

    def refined(self, candidates: Tensor, scores: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """The next iteration's mean and deviation `[B, H, A]`."""
        raise NotImplementedError


class RandomShooting(SamplingPlanner):
    """One round of candidates around nothing; the best is the plan.

    Args: as `SamplingPlanner`; a wide `std` spreads the candidates over the whole range.
    """

    def __init__(self, horizon: int = 15, candidates: int = 1024, std: float = 1.0, correlation: float = 0.8):
        super().__init__(horizon, candidates, 1, elites=1, std=std, correlation=correlation)

    def forward(self, score: Score, state: State, noise: Tensor) -> tuple[Tensor, State]:
        """The best of the candidates; the last plan does not matter."""
        return super().forward(score, {"plan": torch.zeros_like(state["plan"])}, noise)

    def refined(self, candidates: Tensor, scores: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """The best candidate."""
        return best(candidates, scores, 1)[0].squeeze(1), std


class CEM(SamplingPlanner):
    """The cross-entropy method: mean and deviation follow the elites; the last mean is the plan.

    Args: as `SamplingPlanner`.

    Source: Rubinstein 1999; for planning Chua et al. 2018, arXiv:1805.12114, section 5.
    """

    def refined(self, candidates: Tensor, scores: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of the elites, with some of the old."""
        return self.fitted(best(candidates, scores, self.elites)[0], mean, std)

    def fitted(self, elites: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of elites `[B, K, H, A]`, with some of the old."""
        mean = torch.lerp(elites.mean(1), mean, self.momentum)
        return mean, torch.lerp(elites.std(1, correction=0), std, self.momentum)


class ICEM(CEM):
    """CEM that wastes nothing: elites survive iterations and steps, the mean is tried too, the best ever is the plan.

    Args:
        keep: share of the elites that the next iteration, or shifted the next step, gets back as candidates.

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
        self.kept = max(1, round(keep * elites))

    def initial_state(self, batch: int, actions: int) -> State:
        """Also elites that do nothing."""
        plan = super().initial_state(batch, actions)["plan"]
        return {"plan": plan, "elites": plan.unsqueeze(1).repeat(1, self.kept, 1, 1)}

    def forward(self, score: Score, state: State, noise: Tensor) -> tuple[Tensor, State]:
        """Refine the last plan and elites, shifted by a step; the plan is the best candidate of all iterations."""
        mean, kept = shifted(state["plan"]), shifted(state["elites"])
        std, pieces = torch.full_like(mean, self.std), self.pieces(noise, mean.shape[-1])
        elites, scores = kept, torch.full(kept.shape[:2], -math.inf, device=kept.device)
        for i, piece in enumerate(pieces):
            tried = [kept] if i == 0 else []
            tried += [mean.unsqueeze(1)] if i == len(pieces) - 1 else []
            new = torch.cat([self.candidates(piece, mean, std), *tried], dim=1)
            candidates = torch.cat([new, elites[:, : self.kept]], dim=1)
            values = torch.cat([score(new), scores[:, : self.kept]], dim=1)
            elites, scores = best(candidates, values, self.elites)
            mean, std = self.fitted(elites, mean, std)
        return elites[:, 0], {"plan": mean, "elites": elites[:, : self.kept]}


class MPPI(SamplingPlanner):
    """Path integral control: the plan is the mean of all candidates, weighted by the exponential of their scores.

    Args:
        temperature: in standard deviations of the scores, so that their scale does not matter.

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

    def refined(self, candidates: Tensor, scores: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """The weighted mean; the deviation stays."""
        scale = self.temperature * scores.std(1, keepdim=True, correction=0) + 1e-6
        weights = ((scores - scores.amax(1, keepdim=True)) / scale).softmax(1)
        return torch.einsum("bn,bnha->bha", weights, candidates), std


def best(candidates: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` best candidates `[B, count, H, A]` and their scores, the best first; NaN counts as worst."""
    values, index = scores.nan_to_num(nan=-math.inf).topk(count, dim=1)
    return candidates.gather(1, index[..., None, None].expand(-1, -1, *candidates.shape[2:])), values


def shifted(plan: Tensor) -> Tensor:
    """A plan `[..., H, A]` one step later; its last action is held."""
    return torch.cat([plan[..., 1:, :], plan[..., -1:, :]], dim=-2)


def autoregressive(steps: int, correlation: float) -> Tensor:
    """Covariance `[H, H]` of a stationary AR(1) process of unit variance, in float64.

    Raises: ValueError unless the correlation lies in [0, 1).
    """
    if not 0 <= correlation < 1:
        raise ValueError(f"correlation is {correlation}; it must lie in [0, 1).")
    lag = torch.arange(steps, dtype=torch.float64)
    return correlation ** (lag[:, None] - lag).abs()


def power_law(steps: int, beta: float) -> Tensor:
    """Covariance `[H, H]` of noise of unit variance whose power spectrum falls as 1/f^beta, in float64.

    The lowest frequency is 1/H; below it the spectrum is level, so that the mean over the horizon varies too.

    Source: Timmer & Koenig 1995, "On generating power law noise"; as a covariance, one product colours any noise.
    """
    frequency = torch.fft.rfftfreq(2 * steps, dtype=torch.float64).clamp(min=1 / steps)
    autocovariance = torch.fft.irfft(frequency**-beta)[:steps]
    lag = torch.arange(steps)
    covariance = (autocovariance / autocovariance[0])[(lag[:, None] - lag).abs()]
    return covariance + 1e-9 * torch.eye(steps, dtype=torch.float64)


def check(**values: float) -> None:
    """Raises: ValueError unless every value is positive."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} is {value}; it must be positive.")
