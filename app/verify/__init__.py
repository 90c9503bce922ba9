"""`python -m app verify`: check determinism, resume, compilation, ranks and export with your own environment."""
