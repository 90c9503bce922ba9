"""Snake as an on-device environment."""
