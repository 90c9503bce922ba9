"""Step Gymnasium environments in a pool of processes over shared memory. Imports no torch."""
