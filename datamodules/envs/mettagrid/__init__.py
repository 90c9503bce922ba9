"""MettaGrid, a grid world in C++ of the package `mettagrid`, as a vector environment of several agents.

`game` configures mines, generators and altars, `simulators` steps them into shared arrays, and `vector_env` is the
Gymnasium vector environment, with worker processes if asked. The package is imported only when one is created.
"""
