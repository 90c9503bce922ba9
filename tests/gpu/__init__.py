"""Tests that need a CUDA device; they skip themselves elsewhere."""
