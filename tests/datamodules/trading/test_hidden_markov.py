import numpy as np
import pytest

from datamodules.trading.hidden_markov import (
    RegimeModel,
    expected_returns,
    filter_regimes,
    fit_regimes,
    hold_between,
    regime_weights,
)
from datamodules.trading.prices.synthetic import regime, regimes

TRUE = RegimeModel(np.array([0.003, -0.003]), np.array([0.008, 0.016]), np.full(2, 0.98))


def test_the_filter_is_bayes_rule_over_all_paths_of_regimes() -> None:
    returns = regimes(6, seed=1, drift=0.003)
    density, transition = TRUE.densities(returns), TRUE.transition
    paths = np.stack(np.meshgrid(*[[0, 1]] * 6, indexing="ij"), -1).reshape(-1, 6)
    chance = np.array(
        [
            (0.5 * transition[:, path[0]].sum()) * np.prod(transition[path[:-1], path[1:]])
            * np.prod(density[np.arange(6), path])
            for path in paths
        ]
    )  # fmt: skip

    probability, likelihood = filter_regimes(returns, TRUE)

    assert probability[-1, 1] == pytest.approx(chance[paths[:, -1] == 1].sum() / chance.sum(), rel=1e-9)
    assert likelihood.prod() == pytest.approx(chance.sum(), rel=1e-9)


def test_the_fit_finds_the_regimes_that_the_market_was_drawn_from() -> None:
    fitted = fit_regimes(regimes(10_000, seed=2, drift=0.003))

    for found, true, within in zip(fitted, TRUE, (0.0006, 0.0006, 0.01), strict=True):
        assert np.abs(found - true).max() < within


def test_the_filter_knows_the_regime_most_of_the_time() -> None:
    probability, _ = filter_regimes(regimes(5000, seed=3, drift=0.003), TRUE)

    assert ((probability[:, 1] > 0.5) == regime(5000, 3)).mean() > 0.85


def test_later_returns_change_no_earlier_expectation() -> None:
    returns = regimes(400, seed=4)
    changed = np.concatenate([returns[:300], -returns[300:]])

    assert np.array_equal(expected_returns(returns, TRUE)[:300], expected_returns(changed, TRUE)[:300])


def test_a_side_is_held_until_the_signal_leaves_the_band_on_the_other_side() -> None:
    signal = np.array([0.1, 0.6, 0.2, -0.2, -0.6, 0.4, 0.7])

    assert hold_between(signal, 0.5).tolist() == [0, 1, 1, 1, -1, -1, 1]
    assert hold_between(signal, 0.0).tolist() == [1, 1, 1, -1, -1, 1, 1]


def test_the_band_is_the_one_that_grows_most() -> None:
    close = np.exp(np.cumsum(regimes(2000, seed=5, drift=0.003)))

    paths = [regime_weights(close, TRUE, growth) for growth in (lambda w: -np.abs(np.diff(w)).sum(), lambda w: w[0])]

    assert np.abs(np.diff(paths[0])).sum() < np.abs(np.diff(paths[1])).sum()
