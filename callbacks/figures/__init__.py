"""Callbacks that draw figures into TensorBoard and the run folder. A new figure is one more file here."""
