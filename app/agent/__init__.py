"""Trained agents in Python: `load` finds the checkpoint and makes the `Agent`, which acts on numpy arrays."""
