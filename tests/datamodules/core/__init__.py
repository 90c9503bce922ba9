"""Tests of what everything shares: one file for each file of `datamodules/core`."""
