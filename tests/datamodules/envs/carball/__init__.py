"""Tests of Car-ball: against a slow restatement, by properties of its physics, and of every setting."""
