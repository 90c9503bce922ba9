"""Config files: whether one is UTF-8, YAML of bounded size and a mapping, found out before anything reads it."""

from pathlib import Path

import yaml

MAX_BYTES, MAX_NODES, MAX_DEPTH = 1_000_000, 100_000, 100
"""Largest file, most values with every alias written out, and deepest nesting; shipped configs have at most 4 kB."""

EVENTS = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Splits a text into events, and makes nothing of them."""


def problem(path: Path) -> str:
    """Say in one sentence why a file is no config; empty if it is one.

    Nothing in the file is executed: YAML's tags of Python objects are refused.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            return f"`{path}` is no config: it has more than {MAX_BYTES:,} bytes."
        text = path.read_bytes().decode("utf-8-sig")
        if said := excess(text):
            return f"`{path}` is not usable: {said}."
        content = yaml.safe_load(text)
    except UnicodeDecodeError as error:
        byte = f"byte {error.start} is 0x{error.object[error.start]:02x}"
        return f"`{path}` is not UTF-8 text ({byte}): save it as UTF-8."
    except OSError as error:
        return f"`{path}` cannot be read: {error.strerror}."
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        return f"`{path}`, line {line}, is not valid YAML: {' '.join(str(error.problem).split())}."
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # of values such as the date 2020-99-99, too
        return f"`{path}` is not valid YAML: {' '.join(str(error).split())}."
    except RecursionError:
        return f"`{path}` is not usable: its values are nested too deeply."
    if not isinstance(content, dict):
        return f"`{path}` holds no settings: an experiment is a mapping with `model`, `data` and `trainer`."
    if odd := [key for key in content if not isinstance(key, str)]:
        return f"`{path}` has the setting `{odd[0]}`, which is no text: a setting's name is text, such as `model`."
    return ""


def excess(text: str) -> str:
    """Say in a clause what is too much in a YAML text, every alias counted as what it stands for; empty if nothing.

    A text that is no YAML is left to whoever parses it.
    """
    try:
        return _excess(text)
    except yaml.YAMLError:
        return ""


def _excess(text: str) -> str:
    anchored: dict[str, tuple[int, int]] = {}  # values and depth of what an anchor names
    inside: list[tuple[str | None, int, int]] = []  # of collections not yet closed: anchor, values before it, depth
    values = 0
    for event in yaml.parse(text, Loader=EVENTS):
        if isinstance(event, yaml.CollectionStartEvent):
            inside.append((event.anchor, values, 0))
            values, depth = values + 1, 0
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before, depth = inside.pop()
            depth += 1
            if anchor is not None:
                anchored[anchor] = values - before, depth
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor in {anchor for anchor, _, _ in inside}:
                return f"its alias `*{event.anchor}` stands for a value that contains it"
            more, depth = anchored.get(event.anchor, (1, 0))
            values += more
        elif isinstance(event, yaml.ScalarEvent):
            values, depth = values + 1, 0
            if event.anchor is not None:
                anchored[event.anchor] = 1, 0
        else:
            continue
        if inside and depth > inside[-1][2]:
            inside[-1] = (*inside[-1][:2], depth)
        if values > MAX_NODES:
            return f"it has more than {MAX_NODES:,} values, aliases written out"
        if len(inside) + depth > MAX_DEPTH:
            return f"its values are nested too deeply, more than {MAX_DEPTH} times"
    return ""
