"""Find the shipped configs, and check that a file is UTF-8, YAML of bounded size and a mapping before it is parsed."""

from pathlib import Path

import yaml

MAX_BYTES, MAX_NODES, MAX_DEPTH = 1_000_000, 100_000, 100
"""Limits of file size, number of values with aliases expanded, and nesting; shipped configs have at most 4 kB."""

TOO_DEEP = f"its values are nested too deeply, more than {MAX_DEPTH} times"

EVENTS = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Loader that splits a text into events without constructing objects."""

SHARED = "trainer.yaml"
"""File of the settings that all runs share, beside the shipped configs; it is none of them."""


def configs_folder() -> Path:
    """Return the folder of the shipped configs."""
    return Path(__file__).resolve().parents[2] / "configs"


def shipped_configs() -> list[str]:
    """Return the names of the shipped configs."""
    return sorted(path.name for path in configs_folder().glob("*.yaml") if path.name != SHARED)


def problem(path: Path) -> str:
    """Return one sentence that says why a file is not a config; empty if it is one.

    Nothing in the file is executed: YAML's tags of Python objects are refused.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            return f"`{path}` is not a config: it has more than {MAX_BYTES:,} bytes."
        text = path.read_bytes().decode("utf-8-sig")
        if said := excess(text):
            return f"`{path}` is not usable: {said}."
        content = yaml.safe_load(text)
        if said := repeated_key(text):
            return f"`{path}`, {said}."
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
    if not isinstance(content, dict):
        return f"`{path}` holds no settings: an experiment is a mapping with `model`, `data` and `trainer`."
    if odd := [key for key in content if not isinstance(key, str)]:
        return f"`{path}` has the setting `{odd[0]}`, which is not text: a setting's name is text, such as `model`."
    return ""


def compose(text: str) -> yaml.Node | None:
    """Return the nodes of a YAML text; None if it is invalid or exceeds a limit of this module."""
    try:
        return None if excess(text) else yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return None


def repeated_key(text: str) -> str:
    """Return a clause that names the first setting that a mapping of a YAML text holds twice; empty if none.

    YAML forbids it, but PyYAML takes the last one silently.

    Raises: yaml.YAMLError for invalid YAML.
    """
    found: list[tuple[int, int, str]] = []  # line, line of the first, name
    left, seen = [yaml.compose(text, Loader=EVENTS)], set[int]()
    while left:
        node = left.pop()
        if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            left += node.value
            continue
        keys: dict[str, int] = {}
        for key, value in node.value:
            left.append(value)
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode) or key.value == "<<":
                continue
            if key.value in keys:
                found.append((line, keys[key.value], key.value))
            keys.setdefault(key.value, line)
    if not found:
        return ""
    line, first, name = min(found)
    return f"line {line}, has the setting `{name}` of line {first} again: remove one of them"


def excess(text: str) -> str:
    """Return a clause that says which limit a YAML text exceeds, with aliases expanded; empty if none.

    Invalid YAML is ignored; its parser reports it.
    """
    try:
        return _excess(text)
    except yaml.YAMLError as error:
        return TOO_DEEP if "nesting depth" in str(error) else ""  # libyaml has a limit of its own


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
            return TOO_DEEP
    return ""
