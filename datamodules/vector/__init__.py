"""Vector environments with tensors, from Gymnasium, EnvPool and on-device environments."""
