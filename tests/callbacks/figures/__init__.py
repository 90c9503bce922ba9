"""Tests of `callbacks.figures`."""
