"""Experiments: one commented YAML each, found by its bare name from any folder.

`trainer.yaml` is none: it holds the settings of the Trainer that every run shares, shipped or not, below its config.
To add an experiment, copy the nearest, and open it with what it is, the launch command, the expected result and where
that was measured; the contract tests pick it up. This file makes the YAMLs installable package data and holds no code.
"""
