"""Tests of datamodules/market."""
