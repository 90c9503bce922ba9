"""Markets: prices, what may be seen of them, what trading them costs, and what others would have earned.

prices       bars of one symbol from CSV or Parquet, checked line by line
price_columns  which column of a file is which
trading_calendar  how many bars a year has, from their time stamps
sources      the bars of a symbol by name: a file, a folder, the packaged index, a synthetic market
synthetic    markets with a known answer: a random walk, an autoregressive one, one of two regimes
features     what a trader may know at the close of each bar
split        days to train, validate and test on, with an embargo; walk-forward folds
account      the arithmetic of holding and rebalancing
baselines    policies that nobody has to train
performance  returns, risk and their uncertainty
report       agent and baselines on the same days
options      the six hand-written options of a trader

Arrays are NumPy's, float64, one entry a bar, made once on the host; `account` and `options` are functions of tensors.
To add a market, write its generator into `synthetic` and name it there.
"""
