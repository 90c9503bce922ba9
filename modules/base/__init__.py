"""Base of all algorithms: the iteration, metrics, checks, hyperparameters in checkpoints."""
