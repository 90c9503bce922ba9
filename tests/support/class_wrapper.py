"""Wrapper one of whose arguments is a class."""

import gymnasium as gym


class Clock:
    """Counter of steps."""

    steps = 0


class Clocked(gym.Wrapper):
    """Has a clock of a class that can be chosen."""

    def __init__(self, env: gym.Env, clock: type[Clock] = Clock):
        super().__init__(env)
        self.clock = clock()
