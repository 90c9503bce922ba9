"""Application: the verbs of `python -m app`; the only package that may import every other.

Lightning's verbs (fit, validate, test, predict) are in `cli`; each other verb is a package or file with an entry in the
verb table of `__main__.py`. To add one, write that file and that entry. No other package imports this one.
"""
