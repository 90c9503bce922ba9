"""Tests of `callbacks.analysis`."""
