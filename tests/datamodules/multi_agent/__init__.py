"""Environments of several agents: rows, against plain loops, and what wraps them. A file for each module."""
