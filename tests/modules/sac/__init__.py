"""Tests of `modules.sac`."""
