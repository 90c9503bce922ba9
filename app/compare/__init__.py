"""Compare settings over several seeds."""
