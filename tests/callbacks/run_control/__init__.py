"""Tests of `callbacks.run_control`."""
