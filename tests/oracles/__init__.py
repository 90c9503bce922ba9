"""Reference implementations that tests compare with."""
