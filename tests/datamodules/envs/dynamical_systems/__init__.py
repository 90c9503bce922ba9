"""Tests of `datamodules.envs.dynamical_systems`."""
