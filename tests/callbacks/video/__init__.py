"""Tests of `callbacks.video`."""
