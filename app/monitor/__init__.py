"""Show curves and the machine's load in a terminal. Imports no torch."""
