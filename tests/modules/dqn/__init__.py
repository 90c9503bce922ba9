"""Tests of `modules.dqn`."""
