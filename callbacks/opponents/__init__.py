"""Callbacks that choose the opponents of a run, and how many agents play."""
