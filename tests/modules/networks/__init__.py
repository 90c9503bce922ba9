"""Tests of the networks, one file a module of `modules.networks`."""
