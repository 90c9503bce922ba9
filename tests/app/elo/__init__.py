"""Tests of the verb elo."""
