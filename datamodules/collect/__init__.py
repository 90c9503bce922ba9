"""Collect rollouts, evaluation episodes and sequences from vector environments."""
