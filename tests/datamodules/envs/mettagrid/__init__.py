"""Tests of `datamodules.envs.mettagrid`, which skip themselves without the package."""
