"""Tests of `app.compare`."""
