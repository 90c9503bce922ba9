"""Tests of the callbacks that choose opponents."""
