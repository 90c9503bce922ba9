"""Tests of `datamodules.rendering`."""
