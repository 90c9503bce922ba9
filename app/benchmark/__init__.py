"""Measure how fast a configuration trains, beside other libraries."""
