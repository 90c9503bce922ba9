"""Tests of `datamodules.trading.prices`."""
