"""Tests of `datamodules.buffers`."""
