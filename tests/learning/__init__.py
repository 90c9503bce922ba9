"""Agents must reach their references (marker slow, `make learn`): one test a task, best two of three seeds."""
