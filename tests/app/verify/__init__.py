"""Tests of `app.verify`."""
