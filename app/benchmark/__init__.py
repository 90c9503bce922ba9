"""Measure the training speed of a configuration, and compare it with other libraries."""
