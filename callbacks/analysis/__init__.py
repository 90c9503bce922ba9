"""Callbacks that measure weights, gradients, entropy and time, at an interval of iterations."""
