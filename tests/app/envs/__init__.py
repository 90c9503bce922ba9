"""Tests of `app.envs`."""
