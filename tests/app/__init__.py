"""Tests of the verbs, one file a module of `app`."""
