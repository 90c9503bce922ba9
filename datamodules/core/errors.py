"""Errors of Leyden, and suggestions for names that are not known."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """Up to three of the known names, joined by `or`, whatever their case; empty if none is near."""
    names = {each.lower(): each for each in known}
    return " or ".join(names[match] for match in difflib.get_close_matches(name.lower(), names, n=3))


class UsageError(ValueError):
    """A mistake of the user's, said in one sentence: what, where, what to do. The command line shows no traceback."""
