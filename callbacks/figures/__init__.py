"""Callbacks that draw figures into TensorBoard and the run folder. To add a figure, write one more file."""
