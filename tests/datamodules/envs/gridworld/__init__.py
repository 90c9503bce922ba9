"""Tests of `datamodules.envs.gridworld`."""
