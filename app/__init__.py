"""Application: the verbs of `python -m app`; the only package that may import every other.

Lightning's verbs (fit, validate, test, predict) are in `cli`; each other verb is a package or file with an entry in the
tables of `verbs.py`. To add one, write that file and these entries. No other package imports this one.
"""
