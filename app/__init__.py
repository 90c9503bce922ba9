"""The program: the verbs of `python -m app`, and the only package that may import every other.

Lightning's own verbs (fit, validate, test, predict) live in `cli.py`; each further verb is one file here with one line
in the verb table of `__main__.py`. To add one, write that file and that line; nothing else imports this package.
"""
