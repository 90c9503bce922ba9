"""Oracles (slow float64 restatements) and identities of the pure functions, one file a module."""
