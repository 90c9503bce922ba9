"""What every env, algorithm, network and config must satisfy, found by walking the packages.

A new one is picked up by itself; to add a rule, write one parametrised test here.
"""
