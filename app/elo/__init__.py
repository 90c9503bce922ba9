"""Rate checkpoints by games against one another: `ratings` has the Elo system, `main` the verb and its games.

To rate by another system, replace `elo_ratings`.
"""
