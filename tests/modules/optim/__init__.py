"""Tests of `modules.optim`."""
