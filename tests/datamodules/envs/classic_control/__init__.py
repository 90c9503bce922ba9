"""Tests of the classic control tasks against Gymnasium's."""
