"""Compare two commits: the same seed must give the same weights, to the bit, where behaviour is meant to stay."""
