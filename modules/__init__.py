"""What learns: one algorithm a file, over pure functions (`functional`) and networks (`networks`).

`algorithm.py` holds the single base class: counters, metrics, the episode steps. To add an algorithm, subclass
`Algorithm` in a file of its own, write `act`, `prepare` and `update`, add its name to the algorithms' import contract
in pyproject.toml, and give it a config in `configs/`. Algorithms never import one another.
"""
