"""A search with Optuna in one process. To search something else, change `objective` in `search.py`."""
