import numpy as np

from datamodules.trading.performance import (
    min_track_record_length,
    performance,
    sharpe_difference_interval,
    sharpe_ratio,
    standardized_difference,
)
from datamodules.trading.report import verdict


def test_a_year_by_hand() -> None:
    growth = np.log([1.1, 0.5, 1.2])
    ones = np.ones(3)

    done = performance(growth, 0.5 * ones, 0.2 * ones, 0.01 * ones, bars_per_year=3)

    assert np.isclose(done.log_return, np.log(0.66)) and np.isclose(done.cagr, -0.34)
    assert np.isclose(done.drawdown, 0.5) and np.isclose(done.turnover, 0.6) and np.isclose(done.cost, 0.03)
    returns = np.array([0.1, -0.5, 0.2])
    assert np.isclose(done.sharpe, returns.mean() / returns.std() * 3**0.5) and done.exposure == 0.5


def test_cash_has_a_sharpe_ratio_of_zero() -> None:
    assert sharpe_ratio(np.zeros(10)) == 0


def test_the_interval_of_equals_is_nothing_and_that_of_a_clear_winner_is_above_zero() -> None:
    noise = np.random.default_rng(0).standard_normal(2000) * 0.01

    assert sharpe_difference_interval(noise, noise) == (0, 0)
    low, high = sharpe_difference_interval(noise + 0.002, noise)
    assert 0 < low < 0.2 * 252**0.5 < high * 1.5


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(1)
    covered = 0
    for seed in range(60):
        first, second = generator.standard_normal((2, 500)) * 0.01
        low, high = sharpe_difference_interval(first, second, draws=200, seed=seed)
        covered += low <= 0 <= high
    assert covered >= 51  # 85 %: percentiles of a small sample are a little narrow


def test_a_record_of_two_returns_by_hand() -> None:
    returns = np.array([0.03, -0.01])  # Sharpe ratio 1/2, skewness 0, kurtosis 1: the last term vanishes

    assert np.isclose(min_track_record_length(returns, confidence=0.975), 1 + (1.959964 / 0.5) ** 2)
    assert min_track_record_length(-returns) == np.inf == min_track_record_length(np.zeros(5))


def test_a_record_of_that_length_is_significant_about_as_often_as_not() -> None:
    generator, sharpe = np.random.default_rng(0), 0.1
    length = round(1 + (1 + sharpe**2 / 2) * (1.959964 / sharpe) ** 2)
    records = generator.standard_normal((400, length)) + sharpe
    assert np.isclose(min_track_record_length(generator.standard_normal(10**6) + sharpe), length, rtol=0.05)

    significant = records.mean(1) / records.std(1) * length**0.5 > 1.959964

    assert 0.4 < significant.mean() < 0.6


def test_the_mean_of_the_standardised_difference_is_that_of_the_sharpe_ratios() -> None:
    first, second = np.random.default_rng(0).standard_normal((2, 300)) * [[0.01], [0.02]] + 0.001

    difference = standardized_difference(first, second).mean()

    assert np.isclose(difference, sharpe_ratio(first, 1) - sharpe_ratio(second, 1))


def test_the_verdict_says_whether_the_bars_suffice_and_how_many_would() -> None:
    excess = np.random.default_rng(0).standard_normal(1000) + 0.1

    assert verdict(0.1, 0.5, excess).startswith("The agent is better than buy and hold on these 1,000 bars")
    assert "The agent is worse" in verdict(-0.5, -0.1, -excess)
    short = verdict(-0.1, 0.5, excess)
    needed = f"{min_track_record_length(excess):,.0f} bars"
    assert short.startswith("These 1,000 bars are too few to distinguish") and f"difference is {needed}" in short
    assert "more bars would not show skill" in verdict(-0.1, 0.5, -np.abs(excess))
