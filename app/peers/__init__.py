"""Train agents of other libraries on the task of a config, for `benchmark`."""
