"""What all algorithms share: the iteration, metrics, checks, checkpoints' hyperparameters."""
