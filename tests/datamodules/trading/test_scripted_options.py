import pytest
import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.trading.scripted_options import (
    DEFAULT_OPTIONS,
    INDEX,
    ClosePosition,
    HoldWeight,
    OpenLong,
    OpenShort,
    Scalp,
    TrendFollow,
    Wait,
)


def observations(rows: int = 1, **numbers: float) -> Tensor:
    obs = torch.zeros(rows, len(INDEX) + 3)
    for name, value in numbers.items():
        obs[:, INDEX[name]] = value
    return obs


@pytest.mark.parametrize("option", DEFAULT_OPTIONS)
def test_an_option_is_a_batched_function(option: type) -> None:
    obs, age, action = torch.randn(32, len(INDEX)), torch.arange(32), torch.rand(32, 1) * 2 - 1
    one = option()

    assert one.initiation(obs).shape == (32,) and one.initiation(obs).dtype == torch.bool
    assert one.action(obs, age, action).shape == action.shape and one.action(obs, age, action).dtype == action.dtype
    probability = one.termination(obs, age)
    assert probability.shape == (32,) and ((probability >= 0) & (probability <= 1)).all()


def test_where_they_begin() -> None:
    cash, long = observations(), observations(size=0.5, side=1)
    begin = lambda obs: [bool(option().initiation(obs)) for option in DEFAULT_OPTIONS]  # noqa: E731

    assert begin(cash) == [True, True, False, False, False, True]
    assert begin(long) == [False, False, True, False, False, True]
    assert begin(observations(rsi=0.5, trend=2)) == [False, True, False, True, False, True]
    assert begin(observations(rsi=-0.5, trend=-2)) == [True, False, False, True, True, True]


def test_what_they_do_with_the_learned_action() -> None:
    learned, age = torch.tensor([[-0.5]]), torch.zeros(1, dtype=torch.int64)
    obs = observations(size=0.25, trend=-2)
    done = [float(option().action(obs, age, learned)) for option in (OpenLong, OpenShort, ClosePosition, Wait, Scalp)]

    assert done == pytest.approx([0.4, -0.4, 0, 0.25, 0.5])
    assert float(TrendFollow().action(obs, age, learned)) == pytest.approx(-0.3)


def test_they_last_longer_than_a_step() -> None:
    obs, ages = observations(60, size=0.5, trend=2), torch.arange(60)
    for option in (OpenLong, OpenShort, TrendFollow, Scalp, Wait):
        one = option()
        ends = one.termination(obs, ages)
        surviving = (1 - ends[one.min_duration :]).cumprod(0).sum() + one.min_duration
        assert one.min_duration >= 5 and surviving > 6
        assert ends[one.max_duration] >= 0.15


def test_closing_ends_in_cash_and_a_trend_that_fades_ends_its_option() -> None:
    age = torch.full((1,), 12)

    assert ClosePosition().termination(observations(), age) == 1.0
    assert ClosePosition().termination(observations(size=0.5), age) == pytest.approx(0.02)
    assert TrendFollow().termination(observations(trend=0.5), age) == pytest.approx(0.85)
    assert Wait().termination(observations(trend=3.5), age) == 0.75


def test_hold_weight_holds_its_weight_and_ends_after_its_minimum_duration() -> None:
    obs, age = observations(3), torch.arange(3)
    option = HoldWeight(weight=-0.5, min_duration=7)

    assert option.action(obs, age, torch.rand(3, 1)).eq(-0.5).all() and option.initiation(obs).all()
    assert option.termination(obs, age).eq(1).all() and (option.min_duration, option.max_duration) == (7, 0)
    with pytest.raises(ConfigurationError, match="weight is 2; it must be between -1 and 1"):
        HoldWeight(weight=2)
