"""Tests of `app.export`."""
