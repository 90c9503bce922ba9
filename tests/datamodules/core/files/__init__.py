"""Tests of `datamodules.core.files`."""
