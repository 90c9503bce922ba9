"""Tests of the grid worlds of rooms."""
