"""Tests of `callbacks.performance`."""
