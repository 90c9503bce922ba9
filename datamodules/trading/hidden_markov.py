"""Hidden Markov model of two market regimes: what an observer of returns can earn, as a baseline.

Log returns are normal, with mean and deviation of the regime; a regime stays with its own probability.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from datamodules.trading.prices.price_files import Numbers

BANDS = np.linspace(0.0, 0.9, 10)
"""Tried half-widths of the no-trade band, as shares of the largest expected return."""

MAX_FIT_ITERATIONS, TOLERANCE = 100, 1e-6
"""Of `fit_regimes`: most iterations, and the gain of the mean log-likelihood per bar below which it ends."""

SMALLEST_DEVIATION = 1e-6


class RegimeModel(NamedTuple):
    """Parameters of both regimes, each `[2]`: mean and deviation of a bar's log return, probability to stay."""

    mean: Numbers
    deviation: Numbers
    stay: Numbers

    @property
    def transition(self) -> Numbers:
        """Return the transition matrix `[2, 2]`, from row to column."""
        return np.array([[self.stay[0], 1 - self.stay[0]], [1 - self.stay[1], self.stay[1]]])

    def densities(self, returns: Numbers) -> Numbers:
        """Return the densities of the returns in both regimes, `[bars, 2]`."""
        score = (returns[:, None] - self.mean) / self.deviation
        return np.exp(-0.5 * score**2) / (self.deviation * np.sqrt(2 * np.pi)) + 1e-300


def filter_regimes(returns: Numbers, model: RegimeModel) -> tuple[Numbers, Numbers]:
    """Compute the probabilities of the regimes given the returns up to each bar, `[bars, 2]`, and the likelihoods.

    The likelihoods `[bars]` are those of each return given the earlier ones.

    Source: Hamilton 1989, doi:10.2307/1912559, eq. 5 to 8.
    """
    density, transition = model.densities(returns), model.transition
    probability, likelihood = np.empty_like(density), np.empty(len(returns))
    now = np.array([0.5, 0.5])
    for bar, each in enumerate(density):
        joint = (now @ transition) * each
        likelihood[bar] = joint.sum()
        probability[bar] = now = joint / likelihood[bar]
    return probability, likelihood


def fit_regimes(returns: Numbers) -> RegimeModel:
    """Fit the model to log returns `[bars]` by expectation maximisation, from a calm and a wild regime.

    Source: Hamilton 1990, doi:10.1016/0304-4076(90)90093-9; smoothed probabilities by Kim 1994.
    """
    spread = max(float(returns.std()), SMALLEST_DEVIATION)
    model = RegimeModel(np.full(2, returns.mean()), spread * np.array([0.7, 1.4]), np.full(2, 0.95))
    before = -np.inf
    for _ in range(MAX_FIT_ITERATIONS):
        filtered, likelihood = filter_regimes(returns, model)
        now = float(np.log(likelihood).mean())
        if now - before < TOLERANCE:
            break
        before, transition = now, model.transition
        predicted, smoothed = filtered @ transition, filtered.copy()
        moves = np.zeros((2, 2))
        for bar in range(len(returns) - 2, -1, -1):
            joint = filtered[bar][:, None] * transition * (smoothed[bar + 1] / predicted[bar])
            smoothed[bar] = joint.sum(1)
            moves += joint
        weight = smoothed / smoothed.sum(0)
        mean = (weight * returns[:, None]).sum(0)
        deviation = np.sqrt((weight * (returns[:, None] - mean) ** 2).sum(0)).clip(SMALLEST_DEVIATION)
        model = RegimeModel(mean, deviation, np.diag(moves) / moves.sum(1))
    return model


def expected_returns(returns: Numbers, model: RegimeModel) -> Numbers:
    """Return the expected log return of the next bar, given the returns up to each bar, `[bars]`."""
    return filter_regimes(returns, model)[0] @ model.transition @ model.mean


def hold_between(signal: Numbers, band: float) -> Numbers:
    """Return 1 after the signal rose above `band`, -1 after it fell below `-band`, and 0 before either, `[bars]`."""
    side = np.where(signal > band, 1.0, np.where(signal < -band, -1.0, 0.0))
    last = np.maximum.accumulate(np.where(side != 0, np.arange(len(side)), 0))
    return side[last]


def regime_weights(close: Numbers, model: RegimeModel, growth: Callable[[Numbers], float]) -> Numbers:
    """Return the weights `[bars]` that follow the sign of the expected return outside a no-trade band.

    Args:
        close: closing prices.
        model: known or fitted.
        growth: log growth that a path of weights earns, after costs, on bars that may be used to choose the band.
    """
    returns = np.diff(np.log(close), prepend=np.log(close[0]))
    signal = expected_returns(returns, model)
    paths = [hold_between(signal, float(band)) for band in BANDS * np.abs(model.mean).max()]
    return max(paths, key=growth)
