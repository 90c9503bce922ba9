"""Measure the parts of an iteration, and suggest changes."""
