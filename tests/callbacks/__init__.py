"""Tests of the callbacks, one file a module of `callbacks`; each setting has a test that shows it acts."""
