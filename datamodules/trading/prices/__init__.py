"""Read, check, split and generate prices."""
