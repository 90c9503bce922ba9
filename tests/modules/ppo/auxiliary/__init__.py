"""Tests of `modules.ppo.auxiliary`."""
