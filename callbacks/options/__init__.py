"""Callbacks that watch options: usage, collapse, figures."""
