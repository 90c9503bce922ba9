"""Callbacks that choose the opponents of a run."""
