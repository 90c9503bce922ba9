"""Tests of the policies that do not learn."""
