"""Tests of the MinAtar games: against the package `minatar`, and without it."""
