"""Tests of `datamodules.vector`."""
