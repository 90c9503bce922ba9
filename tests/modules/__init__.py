"""Tests of what learns, one file a module of `modules`."""
