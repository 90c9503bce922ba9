"""Train configs to their end from several seeds, and compare the results with published or known references.

`python -m tests.scoreboard` (also `make scoreboard`) trains what `references.yaml` lists and is not yet recorded in
docs/experiments/scoreboard.json, and writes the page beside it. It takes hours, so it is no part of `make check`.
"""
