"""What can be learned in a market is learned, what cannot is not, and dear trades are made less often; with PPO."""

from pathlib import Path
from typing import Any

import lightning
import numpy as np
import pytest
import torch

from datamodules.collect.evaluation import EvaluationDataset
from datamodules.rollout import RolloutDataModule
from datamodules.trading.account import account
from datamodules.trading.env import Trading
from datamodules.trading.prices.synthetic import prices_of, synthetic_prices
from datamodules.vector.make_env import make_vector_env
from modules.networks import MLP
from modules.ppo.ppo import PPO
from tests.support.price_fixtures import write_prices
from tests.support.small_runs import trainer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

PHI, VOLATILITY = 0.3, 0.01


def trained(root: Path, seed: int, steps: int = 200_000, gamma: float = 0.5, **market: Any) -> dict[str, float]:
    """Trains on the first days; what the greedy agent did on the test days."""
    lightning.seed_everything(seed, verbose=False)
    data = RolloutDataModule("Trading-v0", env_kwargs=market, num_envs=64, rollout_length=64, total_env_steps=steps)
    model = PPO(
        data.spaces,
        network=lambda shape: MLP(shape, hidden=[64, 64]),
        learning_rate=1e-3,
        learning_rate_schedule="linear",
        update_epochs=4,
        num_minibatches=8,
        gamma=gamma,
        normalize_obs=True,
        normalize_reward=True,
    )
    trainer(root).fit(model, datamodule=data)
    envs = make_vector_env("Trading-v0", 1, env_kwargs=market | {"split": "test"})
    return {
        name: float(value[0]) for name, value in EvaluationDataset(envs, model.eval(), 1, seed=0).run().info.items()
    }


def autoregressive(**costs: float) -> dict[str, Any]:
    settings = {"bars": 5000, "phi": PHI, "volatility": VOLATILITY}
    return {"symbol": "AR1", "synthetic": settings, "borrow_rate": 0.0, **costs}


def oracle(market: dict[str, Any]) -> float:
    """Log return on the test days of the weight that is linear in the last return, w = phi r / variance, cut to 1."""
    env = Trading(**market, split="test")
    bars = slice(env.first, env.first + env.length)
    returns = torch.from_numpy(np.diff(np.log(env.prices[0].close), prepend=0.0))[bars]
    weight = (PHI * returns / ((1 - PHI**2) * VOLATILITY**2)).clamp(-1, 1)
    return float(account(weight, env.tables[torch.device("cpu")].gain[0, bars], env.costs).factor.log().sum())


def test_an_autoregressive_market_gives_the_agent_most_of_what_it_gives_who_knows_it(tmp_path: Path) -> None:
    market = autoregressive(cost_bps=0)

    shares = [trained(tmp_path, seed, **market)["log_return"] / oracle(market) for seed in (1, 2, 3)]

    assert sorted(shares)[1] >= 0.7, shares


def test_dear_trades_cut_turnover_to_a_third(tmp_path: Path) -> None:
    cheap, dear = (
        [trained(tmp_path, seed, gamma=0.9, **autoregressive(cost_bps=cost))["turnover"] for seed in (1, 2, 3)]
        for cost in (0, 50)
    )

    assert sorted(dear)[1] <= sorted(cheap)[1] / 3, (cheap, dear)


def test_returns_in_shuffled_order_teach_nothing(tmp_path: Path) -> None:
    returns = np.diff(np.log(synthetic_prices("AR1").close))
    shuffled = np.random.default_rng(0).permutation(returns - returns.mean())
    path = write_prices(tmp_path / "X.csv", prices_of("X", shuffled))
    market: dict[str, Any] = {"symbol": "X", "prices": str(path), "cost_bps": 0, "borrow_rate": 0.0}
    years = Trading(**market, split="test").length / 252

    scores = [trained(tmp_path, seed, **market)["sharpe"] * years**0.5 for seed in (1, 2, 3)]

    assert abs(sorted(scores)[1]) < 2, scores
