"""Gymnasium's classic control as on-device environments: the same equations of motion, rewards and time limits.

To add one, write a subclass of `ClassicControlEnv` in its own file and register it in `datamodules.envs`.
"""
