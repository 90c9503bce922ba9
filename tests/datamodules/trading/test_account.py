import math

import torch

from datamodules.trading.account import Costs, account, drifted_weight

COSTS = Costs(trade=0.01, borrow=0.001)


def f64(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_a_path_by_hand() -> None:
    done = account(f64(1, 0.5, -1), f64(0.10, -0.20, 0.05), COSTS)

    drift = 0.5 * 0.8 / 0.9
    factors = [1 + 0.1 - 0.01, 1 - 0.1 - 0.01 * 0.5, 1 - 0.05 - 0.01 * (1 + drift) - 0.001]
    torch.testing.assert_close(done.factor, f64(*factors), rtol=1e-14, atol=0)
    torch.testing.assert_close(done.traded, f64(1, 0.5, 1 + drift), rtol=1e-14, atol=0)


def test_a_full_position_drifts_nowhere_and_cash_stays_cash() -> None:
    assert drifted_weight(f64(1, 0), f64(0.3, 0.3)).tolist() == [1, 0]


def test_nothing_happens_after_ruin() -> None:
    done = account(f64(-1, 1, 1), f64(1.5, 0.1, 0.1), COSTS)

    assert math.isclose(done.factor[0], 1e-6) and done.factor[1:].tolist() == [1, 1]
    assert not done.traded[1:].any() and not done.cost[1:].any()
