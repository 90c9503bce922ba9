"""Vector environments: one interface of tensors over Gymnasium, EnvPool and on-device environments."""
