"""Errors that are reported in one sentence, and suggestions for unknown names."""

import difflib
from collections.abc import Iterable


def suggest_names(name: str, known: Iterable[str]) -> str:
    """Return up to three known names similar to `name` (ignoring case), joined by `or`; empty if none is similar."""
    names = {each.lower(): each for each in known}
    return " or ".join(names[match] for match in difflib.get_close_matches(name.lower(), names, n=3))


class ConfigurationError(ValueError):
    """User error whose message says what is wrong, where, and what to do; printed without a traceback."""


class UnwritableFileError(OSError):
    """Error of a file that the program writes, with its name; printed without a traceback."""
