"""Vector environment of Gymnasium environments in worker processes with shared memory. Imports no torch."""
