"""Tests of `app.plot`."""
