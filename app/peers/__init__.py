"""Train other libraries on the same task, for `benchmark`."""
