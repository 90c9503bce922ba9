"""Tests of where data comes from, one file a module of `datamodules`."""
