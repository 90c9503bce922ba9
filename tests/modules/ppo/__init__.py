"""Tests of `modules.ppo`."""
