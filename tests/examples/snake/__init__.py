"""Tests of the older Snake system's face."""
