"""Tests of `app.monitor`."""
