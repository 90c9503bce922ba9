"""Tests of `callbacks.options`."""
