"""Callbacks that save, stop and summarise a run."""
