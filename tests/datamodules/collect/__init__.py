"""Tests of `datamodules.collect`."""
