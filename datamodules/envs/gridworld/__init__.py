"""A grid world of mines, generators and altars for several agents, as an on-device environment.

`env` has its rules, `maps` the random maps, `rendering` its pictures, and `forager` a scripted player that is the
baseline of agents. To add an object, give it a kind in `maps`, a rule in `env` and a plane in its observation.
"""
