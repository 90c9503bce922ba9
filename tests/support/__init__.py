"""Environments, networks, fixtures and small runs that several tests use."""
