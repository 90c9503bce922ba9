"""Tests of `modules.networks.heads`."""
