"""Tests of modules/exploration."""
