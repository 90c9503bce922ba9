"""Tests of the documentation: its listings run, its links resolve, and it says what the code says."""
