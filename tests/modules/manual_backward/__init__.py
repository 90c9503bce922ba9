"""Tests of `modules.manual_backward`: its results are those of the algorithms, which it replaces only where it may."""
