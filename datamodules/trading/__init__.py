"""Trading: prices, features, a trading environment, baselines and performance measures.

prices.price_files       bars of one symbol from CSV or Parquet, checked line by line
prices.parsing           the text of price files: cells, columns, numbers, times, and the settings of formats
prices.trading_calendar  bars per year, from time stamps
prices.sources           bars of a symbol by name: a file, a folder, the packaged index, a synthetic market
prices.synthetic         synthetic markets: a random walk, an autoregressive one, one of two regimes
prices.features          features known at the close of each bar
prices.time_split        training, validation and test periods, with an embargo; walk-forward folds
account                  gains of positions and costs of rebalancing
baselines                policies without training
performance              returns, risk and their confidence intervals
hidden_markov            a baseline that filters two regimes from returns
report                   agent and baselines on the same days
scripted_options         hand-written options

Arrays are NumPy's, float64, one entry per bar, computed once on the host; `account` and `scripted_options` are
functions of tensors. To add a market, write its generator in `prices.synthetic` and name it there.
"""

from typing import TYPE_CHECKING

from datamodules.core.exports import lazy_exports

EXPORTS = {
    "OpenLong": "datamodules.trading.scripted_options",
    "OpenShort": "datamodules.trading.scripted_options",
    "ClosePosition": "datamodules.trading.scripted_options",
    "TrendFollow": "datamodules.trading.scripted_options",
    "Scalp": "datamodules.trading.scripted_options",
    "Wait": "datamodules.trading.scripted_options",
    "HoldWeight": "datamodules.trading.scripted_options",
}
"""The exported classes and their modules; the imports below repeat them for type checkers."""

if TYPE_CHECKING:
    from datamodules.trading.scripted_options import ClosePosition as ClosePosition
    from datamodules.trading.scripted_options import HoldWeight as HoldWeight
    from datamodules.trading.scripted_options import OpenLong as OpenLong
    from datamodules.trading.scripted_options import OpenShort as OpenShort
    from datamodules.trading.scripted_options import Scalp as Scalp
    from datamodules.trading.scripted_options import TrendFollow as TrendFollow
    from datamodules.trading.scripted_options import Wait as Wait
else:
    __getattr__, __dir__ = lazy_exports(__name__, EXPORTS)
