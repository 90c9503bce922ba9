"""Optimizers, flat parameters and collective operations."""
