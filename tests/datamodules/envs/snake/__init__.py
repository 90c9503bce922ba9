"""Tests of `datamodules.envs.snake`."""
