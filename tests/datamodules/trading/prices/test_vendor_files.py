"""Files as vendors write them: read right, or refused with file, line and setting; none is wrong in silence."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.trading.account import Costs, account
from datamodules.trading.env import Trading
from datamodules.trading.prices.sources import load_prices
from datamodules.trading.prices.trading_calendar import bars_per_year
from tests.support.convention_cases import CASES, mixture
from tests.support.vendor_price_files import Case, as_prices

pytest.importorskip("pandas", reason="needs the extra trading")
pytest.importorskip("pyarrow", reason="needs the extra trading")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def written(case: Case, folder: Path) -> Path:
    path = folder / case.file
    path.write_bytes(case.content) if isinstance(case.content, bytes) else case.content(path)
    return path


def test_the_set_is_large() -> None:
    assert len({case.file for case in CASES}) == len(CASES) >= 64
    assert sum(case.bars is None for case in CASES) >= 16


@pytest.mark.parametrize("case", [case for case in CASES if case.bars is not None], ids=lambda case: case.file)
def test_an_accepted_file_has_the_right_bars_and_buys_and_holds_right(case: Case, tmp_path: Path) -> None:
    path, expected = written(case, tmp_path), as_prices(case.bars or [])

    (found,) = load_prices(case.symbol, str(path), price_format=case.settings)
    a_year = None if bars_per_year(found.time) else 98_280  # a day of minutes does not show it
    account_of: dict[str, Any] = {"split": "all", "embargo": 0, "bars_per_year": a_year}
    env = Trading(case.symbol, str(path), price_format=case.settings, **account_of)

    assert np.array_equal(found.time, expected.time)
    for name in ("open", "high", "low", "close", *(("volume",) if case.volume else ())):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9, err_msg=name)
    bars = slice(env.first, env.first + env.length)
    gain, weight = env.tables[torch.device("cpu")].gain[0, bars], torch.ones(env.length, dtype=torch.float64)
    held, opens = account(weight, gain, Costs(0.0, 0.0)), [bar.open for bar in case.bars or []]
    assert held.factor.log().sum() == pytest.approx(math.log(opens[bars.stop + 1] / opens[bars.start + 1]), abs=1e-9)


@pytest.mark.parametrize("case", [case for case in CASES if case.bars is None], ids=lambda case: case.file)
def test_a_refused_file_is_named_with_its_line_and_the_setting(case: Case, tmp_path: Path) -> None:
    path = written(case, tmp_path)

    with pytest.raises(ConfigurationError, match=case.refusal) as refusal:
        load_prices(case.symbol, str(path), price_format=case.settings)

    assert case.file in str(refusal.value) and "\n" not in str(refusal.value)


def test_mixtures_of_conventions_are_right_or_refused(tmp_path: Path) -> None:
    accepted = 0
    for seed in range(36):
        file, content, bars = mixture(seed)
        (tmp_path / file).write_bytes(content)
        try:
            (found,) = load_prices("X", str(tmp_path / file))
        except ConfigurationError as refusal:
            assert re.search(rf"{file}, line \d+.*price_format", str(refusal)), refusal
            continue
        accepted, expected = accepted + 1, as_prices(bars)
        assert np.array_equal(found.time, expected.time), file
        for name in ("open", "high", "low", "close", "volume"):
            np.testing.assert_allclose(
                getattr(found, name), getattr(expected, name), rtol=1e-9, err_msg=f"{file} {name}"
            )

    assert accepted >= 22
