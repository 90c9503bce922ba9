"""Tests of the programs in `examples`, which run from inside their folders."""
