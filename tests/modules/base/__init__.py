"""Tests of `modules.base`."""
