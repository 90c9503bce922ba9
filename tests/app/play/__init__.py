"""Tests of `app.play`."""
