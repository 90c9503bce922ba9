"""Tests of `modules.options`."""
