"""Errors that are reported in one sentence, and suggestions for unknown names."""

import difflib
from collections.abc import Iterable
from types import ModuleType


def suggest_names(name: str, known: Iterable[str]) -> str:
    """Return up to three known names similar to `name` (ignoring case), joined by `or`; empty if none is similar."""
    names = {each.lower(): each for each in known}
    return " or ".join(names[match] for match in difflib.get_close_matches(name.lower(), names, n=3))


def nearest(word: str, candidates: Iterable[str], *, count: int = 8) -> str:
    """Return a clause that names the candidate closest to `word`, else the first `count` of them."""
    candidates = sorted(set(candidates))
    close = difflib.get_close_matches(word, candidates, n=1, cutoff=0.6)
    if close:
        return f"did you mean `{close[0]}`?"
    if not candidates:
        return "there is nothing to choose from."
    return f"choose from {', '.join(candidates[:count])}{', ...' if len(candidates) > count else '.'}"


def public_classes(module: ModuleType) -> list[str]:
    """Return the names of the public classes of a module, including those that it imports when they are first used."""
    names = (name for name in dir(module) if not name.startswith("_"))
    return [name for name in names if isinstance(getattr(module, name, None), type)]


class ConfigurationError(ValueError):
    """User error whose message says what is wrong, where, and what to do; printed without a traceback."""


class UnwritableFileError(OSError):
    """Error of a file that the program writes, with its name; printed without a traceback."""
