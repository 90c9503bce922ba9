"""Tests of `app.benchmark`."""
