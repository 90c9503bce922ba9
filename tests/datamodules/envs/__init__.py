"""Tests of the environments, one file an environment."""
