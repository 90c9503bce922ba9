import numpy as np

from datamodules.trading.performance import performance, sharpe_difference_interval, sharpe_ratio


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
