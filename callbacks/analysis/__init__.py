"""Callbacks that measure, every so many iterations, what happens in networks and where time goes."""
