from pathlib import Path

import numpy as np
import pytest

from datamodules.market.sources import described, markets
from datamodules.market.synthetic import synthetic_prices
from datamodules.types import UsageError
from tests.datamodules.market.bars import write_prices


def test_a_folder_holds_symbols_cut_to_the_bars_they_share(tmp_path: Path) -> None:
    long, short = synthetic_prices("WALK", bars=50), synthetic_prices("WALK", bars=48, seed=1)
    write_prices(tmp_path / "A.csv", long), write_prices(tmp_path / "B.csv", short)

    first, second = markets("all", str(tmp_path))

    assert (first.symbol, second.symbol) == ("A", "B") and np.array_equal(first.time, second.time)
    assert len(first.close) == 48 and markets("B", str(tmp_path))[0].close.tolist() == short.close.tolist()


def test_the_packaged_index_answers_to_spy_and_says_that_it_is_the_index() -> None:
    pytest.importorskip("arch", reason="needs the extra trading")

    (prices,) = markets("SPY")

    assert len(prices.close) == 5031 and "index" in described("SPY")
    assert str(prices.time[0]).startswith("1999-01-04") and str(prices.time[-1]).startswith("2018-12-31")


def test_each_of_several_symbols_is_called_what_it_is() -> None:
    index, market = described("SPY,WALK").split(". ")

    assert index.startswith("SPY: the S&P 500 index") and market == "WALK: synthetic"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"symbol": "XYZ"}, "no prices of XYZ"),
        ({"symbol": "AR1", "synthetic": {"rho": 1}}, "rho"),
        ({"symbol": "SPY", "synthetic": {"seed": 1}}, "no synthetic market"),
        ({"symbol": "A", "prices": ".", "synthetic": {"seed": 1}}, "two sources"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        markets(**arguments)


def test_a_symbol_that_the_folder_lacks_is_named(tmp_path: Path) -> None:
    write_prices(tmp_path / "A.csv", synthetic_prices("WALK", bars=9))

    with pytest.raises(UsageError, match="no prices of B, only A"):
        markets("A,B", str(tmp_path))
