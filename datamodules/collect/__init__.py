"""Collect rollouts, evaluation episodes and validation sequences from vector environments."""
