"""Tests of `datamodules.env_interface`."""
