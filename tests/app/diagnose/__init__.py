"""Tests of `app.diagnose`."""
