"""Heads: policies, action values and critics from features."""
