"""Tests of `app.runs`."""
