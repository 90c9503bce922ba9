"""`python -m app verify`: check what training relies on, for an environment and a network of yours."""
