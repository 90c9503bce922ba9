"""Tests of `modules.active_dynamics`."""
