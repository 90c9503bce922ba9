"""Tests of `app.peers`."""
