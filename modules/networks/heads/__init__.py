"""Heads: policies, Q-values and twin critics from features."""
