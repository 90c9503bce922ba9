"""Experiments: one complete, commented YAML each, found by its bare name from any folder.

To add one, copy the nearest, and open it with what it is, the launch command, the expected result and where that was
measured; the contract tests pick it up. This file makes the YAMLs installable package data and holds no code.
"""
