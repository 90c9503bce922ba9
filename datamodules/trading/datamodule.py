"""TradingDataModule: trading accounts with training, validation and test periods."""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from datamodules.collect.evaluation import EvaluationDataset
from datamodules.core.arguments import require_values
from datamodules.core.errors import ConfigurationError
from datamodules.replay import ReplayDataModule
from datamodules.trading.account import account
from datamodules.trading.env import Trading
from datamodules.trading.hidden_markov import RegimeModel, fit_regimes, regime_weights
from datamodules.trading.prices.price_files import Numbers, Prices
from datamodules.trading.prices.sources import describe_source
from datamodules.trading.prices.synthetic import known_regime, regime_settings
from datamodules.trading.report import Report, report
from datamodules.vector.func_vector_env import TensorVectorEnv
from datamodules.vector.make_env import make_vector_env


class TradingDataModule(ReplayDataModule):
    """Replay buffer of trading accounts, trained on the first days, validated on later ones and tested on the last.

    `validate` and every evaluation during training play one pass over the validation days of every symbol, greedily;
    `test` and `predict` play the test days. The periods are printed at the start.

    Args:
        symbol: one name, several separated by commas, or `all` for every file of a folder, or symbol of a file.
        prices: a CSV or Parquet file, or a folder of them; without it the packaged S&P 500 index (`SPX`, `SPY`) or a
            synthetic market (`WALK`, `AR1`, `REGIMES`).
        price_format: settings for files that can be read in more than one way, such as `{dayfirst: true}`
            (`datamodules.trading.prices.parsing.price_format.PriceFormat`).
        synthetic: settings of the synthetic market.
        val_from: first day of validation; null: after 60 % of the bars.
        test_from: first day of test; null: after 80 % of the bars.
        env: id of the environment.
        env_kwargs: other arguments of `datamodules.trading.env.Trading`, including costs and limits; those above are
            set by their own names only.
        replay: arguments of `datamodules.ReplayDataModule`.

    Raises: ConfigurationError for prices that cannot be used, fewer environments than symbols, and `env_kwargs` that
        contradict the arguments above.
    """

    def __init__(
        self,
        symbol: str = "SPY",
        prices: str | None = None,
        synthetic: dict[str, Any] | None = None,
        val_from: str | None = None,
        test_from: str | None = None,
        env: str = "Trading-v0",
        env_kwargs: dict[str, Any] | None = None,
        price_format: dict[str, Any] | None = None,
        **replay: Any,
    ):
        require_values("data", TradingDataModule, locals())
        market = {"symbol": symbol, "prices": prices, "synthetic": synthetic}
        market |= {"val_from": val_from, "test_from": test_from, "price_format": price_format}
        _refuse_market(env_kwargs or {}, market)
        later = {"split": "val"} | (replay.pop("eval_env_kwargs", None) or {})
        super().__init__(env, env_kwargs=(env_kwargs or {}) | market, eval_env_kwargs=later, **replay)
        example = Trading(**self.env_kwargs)
        self.symbols, self._regime = len(example.prices), None if prices else known_regime(symbol, synthetic or {})
        self._regime_settings = None if prices else regime_settings(symbol, synthetic or {})
        self._regime_weights: list[dict[str, Numbers]] = []
        if self.num_envs < self.symbols:
            raise ConfigurationError(
                f"data.num_envs is {self.num_envs}, fewer than the {self.symbols} symbols: raise it."
            )
        self.eval_episodes = self.symbols  # each symbol is traded once, whatever the setting
        days = example.days.described(example.prices[0].time)
        rank_zero_info(f"{describe_source(symbol, prices)}, {example.bars_per_year} bars a year. It {days}.")

    def active_regime(self) -> Tensor | None:
        """Return the regime of the bar of every environment's last decision during `fit`, int64 `[B]`; None if unknown.

        Undefined in environments whose episode has just begun.
        """
        if self._regime is None or self.collector is None:
            return None
        bar = self.collector.state.env_state["bar"]
        self._regime = self._regime.to(bar.device)
        return self._regime[bar - 1]

    def test_dataloader(self) -> EvaluationDataset:
        """Return the dataset of episodes on the test days."""
        self.eval_env_kwargs = self.eval_env_kwargs | {"split": "test"}
        return super().test_dataloader()

    def predict_dataloader(self) -> EvaluationDataset:
        """Return the dataset of episodes on the test days, with trajectories."""
        self.eval_env_kwargs = self.eval_env_kwargs | {"split": "test"}
        return super().predict_dataloader()

    @property
    def rendered_env_kwargs(self) -> dict[str, Any]:
        """Return the arguments of the environment on the test days."""
        return self.eval_env_kwargs | {"split": "test"}

    @torch.no_grad()
    def reports(self) -> list[Report]:
        """Compare the greedy agent with the baselines, for every symbol, on the days of the evaluation."""
        assert self.trainer is not None
        device = self.trainer.strategy.root_device
        envs = make_vector_env(self.env, self.symbols, env_kwargs=self.eval_env_kwargs, device=device)
        env = cast(Trading, cast(TensorVectorEnv, envs).env)
        limits: dict[str, Any] = {"seed": 0, "max_steps": env.length, "name": self.env}
        episodes = EvaluationDataset(envs, self._actor, self.symbols, greedy=True, record=True, **limits)
        path = torch.zeros(self.symbols, env.length, dtype=torch.float64)  # nothing is held after ruin
        for weights, episode in zip(path, episodes.run().trajectories, strict=True):
            weights[: len(episode["action"])] = env.weight(episode["action"])
        bars, gain = slice(env.first, env.first + env.length), env.tables_on(torch.device("cpu")).gain
        shared: dict[str, Any] = {"costs": env.costs, "limits": env.limits, "bars_per_year": env.bars_per_year}
        symbols = zip(env.prices, gain, path, self.regime_weights(env), strict=True)
        return [report(prices, change, bars, weight, others=each, **shared) for prices, change, weight, each in symbols]

    def regime_weights(self, env: Trading) -> list[dict[str, Numbers]]:
        """Return every symbol's weights on all bars by hidden Markov models, by the names of their rows, computed once.

        Models are fitted, and their no-trade bands chosen, on the training bars. A synthetic market of regimes also has
        the model that it was drawn from.
        """
        if not self._regime_weights:
            gain = env.tables_on(torch.device("cpu")).gain
            self._regime_weights = [self._weights_of(env, *each) for each in zip(env.prices, gain, strict=True)]
        return self._regime_weights

    def _weights_of(self, env: Trading, prices: Prices, gain: Tensor) -> dict[str, Numbers]:
        first, last = env.days.train
        training = slice(first, last - env.lag)  # the result of the last decision is within training
        models = {"hidden Markov, fitted": fit_regimes(np.diff(np.log(prices.close[: last + 1])))}
        if (made := self._regime_settings) is not None:
            drift, stay = np.array([made["drift"], -made["drift"]]), np.full(2, made["stay"])
            models["hidden Markov, known"] = RegimeModel(drift, np.asarray(made["volatility"]), stay)

        def growth(path: Numbers) -> float:
            held = torch.from_numpy(path[training].clip(*env.limits))
            return float(account(held, gain[training], env.costs).factor.log().sum())

        return {name: regime_weights(prices.close, model, growth) for name, model in models.items()}


def _refuse_market(env_kwargs: Mapping[str, Any], market: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for arguments of the environment that the data module sets to other values."""
    for name, value in market.items():
        if name in env_kwargs and env_kwargs[name] != value:
            shown, own = ("null" if each is None else each for each in (env_kwargs[name], value))
            raise ConfigurationError(
                f"data.env_kwargs.{name} is {shown}, but data.{name}, which is {own}, sets it: set data.{name} instead."
            )
