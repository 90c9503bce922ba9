"""Tests of `modules.functional.dynamics`."""
