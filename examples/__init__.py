"""Programs around Leyden, one folder each: how an older system's code goes on working on top of it.

To add one: a folder with a page (README.md) and scripts that run from inside it, tested from `tests/examples`.
"""
