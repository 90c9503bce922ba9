"""Tests of the search with Optuna, skipped without it."""
