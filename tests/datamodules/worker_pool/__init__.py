"""Tests of `datamodules.worker_pool`."""
