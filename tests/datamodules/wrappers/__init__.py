"""Tests of `datamodules.wrappers`, one file per module."""
