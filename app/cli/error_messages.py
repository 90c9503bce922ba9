"""Turns what the parser or a constructor complains about into one sentence on stderr and exit code 2.

The parser reports from the inside out: first the class whose option is wrong, last the whole command line. The
innermost complaint says what is wrong; the keys of all of them together say where, in which file and on which line.
"""

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, Union, get_args, get_origin

import yaml

from app.cli.config_files import problem
from app.cli.import_policy import why_untrustworthy
from app.cli.setting_owners import owners
from datamodules.core.files.printable import printable_line

PLAIN_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    dict: "a mapping",
    NoneType: "null",
}
KEY = re.compile(r'Parser key "([^"]+)"')
UNKNOWN = re.compile(r"[Oo]ption '([^']+)'|unrecognized arguments: (\S+)")
REQUIRED = re.compile(r"arguments are required: (.+)")
NO_VALUE = re.compile(r"argument (?:\S+/)?(--?[\w.]+): expected")
DENIED = re.compile(r"Importing '([^']+)' is not allowed")
BAD_CLASS = re.compile(r"Problem with given class_path '([^']+)':\s+(.+)")
BAD_CALLABLE = re.compile(r"expects a function or a callable class: (.+)\. Got value: (\S+)")
BAD_KIND = re.compile(r"(?:Import path|instantiatable class, but)(?: \S+)? ((?:does not|is) .+)")
GIVEN_CLASS = re.compile(r"(?:'class_path': '|class_path='|value: )([\w.]+)")
NO_PATH = re.compile(r"Expected a dot import path string: (\S+)")
VALUE = re.compile(r"(?:Got|Given) value: (.*)")


class Complaint(NamedTuple):
    """What one parser said: its options with their types, and its message."""

    options: dict[str, Any]
    message: str


class Entry(NamedTuple):
    """One setting as the user wrote it: its key in parts, its text (None for a mapping), and the place."""

    parts: tuple[str, ...]
    text: str | None
    place: str


def refuse(sentence: str) -> NoReturn:
    """Say one sentence on stderr and end with exit code 2, the code for bad input.

    Raises:
        SystemExit: always.
    """
    print(printable_line(sentence), file=sys.stderr)
    raise SystemExit(2)


class PlainParser(argparse.ArgumentParser):
    """A parser whose every error is one sentence, exit code 2, and no usage dump."""

    def error(self, message: str) -> NoReturn:
        """Refuse."""
        refuse(f"{message[:1].upper()}{message[1:]} (`{self.prog} --help` shows the options).")


def nearest(word: str, candidates: Iterable[str], *, count: int = 8) -> str:
    """A clause that names the candidate closest to `word`, else the first `count` of them."""
    candidates = sorted(set(candidates))
    close = get_close_matches(word, candidates, n=1, cutoff=0.6)
    if close:
        return f"did you mean `{close[0]}`?"
    if not candidates:
        return "there is nothing to choose from."
    return f"choose from {', '.join(candidates[:count])}{', ...' if len(candidates) > count else '.'}"


def explain(complaints: Sequence[Complaint], argv: Sequence[str]) -> str:
    """The sentence for a failed parse.

    Args:
        complaints: what the parsers said, innermost first; the last one is final.
        argv: the verb and what follows it, bare config names resolved.
    """
    final = complaints[-1].message
    if final.startswith(("Problems parsing config", "Unexpected config")):
        return _broken_file(argv, final)
    relevant = [c for c in complaints[:-1] if c.message.splitlines()[0] in final] + [complaints[-1]]
    options, message = relevant[0]
    parents = [match[1] for c in reversed(relevant) if (match := KEY.search(c.message))]
    if match := UNKNOWN.search(message):
        return _unknown_key(match[1] or match[2], parents, options, argv)
    if match := REQUIRED.search(message):
        return _missing(match[1].split(", "), parents)
    if match := NO_VALUE.search(message):
        given = [token for token in argv if token.startswith(match[1])]
        return f"`{given[-1] if given else match[1]}` needs a value."
    if path := _class_problem(message):
        return _bad_class(*path, _protocols(complaints), argv)
    if match := KEY.search(message):
        return _wrong_type(match[1], parents, options, message, argv)
    return message


def _unknown_key(key: str, parents: list[str], options: dict[str, Any], argv: Sequence[str]) -> str:
    if not key.startswith("-") and key in argv and not parents:
        return f"`{key}` is not an option: every setting is written `--key value`."
    key = key.lstrip("-").split("=")[0]
    written, place = _locate([*parents, key], None, argv)
    valid = [name for name in options if not name.endswith("help") and name != "print_config"]
    if not valid:
        owner = written.rpartition(".")[0]
        cure = f"name a class there first, as in `--{owner} modules.networks.MLP`."
        return f"`{written}` ({place}) is not a setting, because `{owner}` takes none as it is: {cure}"
    if found := owners(written):
        one, others = ("another class", "that") if len(found) == 1 else ("other classes", "one of them")
        return (
            f"`{written}` ({place}) belongs to {one}: name {others} (class_path {' or '.join(found)}), or leave it out."
        )
    head, _, _ = key.rpartition(".")
    siblings = [name for name in valid if head and name.startswith(f"{head}.")]
    return f"`{written}` ({place}) is not a setting: {nearest(key, siblings or valid)}"


def _wrong_type(key: str, parents: list[str], options: dict[str, Any], message: str, argv: Sequence[str]) -> str:
    match = VALUE.search(message)
    hint = options.get(key, options.get(key.partition(".")[2]))
    return wrong_value(parents, match[1] if match else None, hint, argv)


def wrong_value(keys: Sequence[str], value: str | None, hint: Any, argv: Sequence[str]) -> str:
    """Return the sentence for a value that is not of the type `hint`.

    Args:
        keys: of the setting, outermost first.
        value: as the parser read it; None if that is not known.
        argv: the verb and what follows it.
    """
    written, place = _locate(keys, value, argv)
    got = f"is `{'null' if value == 'None' else value}`" if value is not None else "has the wrong type"
    return f"`{written}` ({place}) {got}, but it must be {_words(hint)}."


def _missing(keys: list[str], parents: list[str]) -> str:
    names = [".".join([*parents, key.partition(".")[2] or key]) for key in keys]
    return f"The experiment lacks {' and '.join(f'`{name}`' for name in names)}: set it in a config or after `--`."


def _class_problem(message: str) -> tuple[str, str] | None:
    if match := DENIED.search(message):
        return match[1], ""
    if match := BAD_CLASS.search(message):
        return match[1], match[2]
    if match := BAD_CALLABLE.search(message):
        return match[2], match[1]
    if (match := BAD_KIND.search(message)) and (given := GIVEN_CLASS.search(message)):
        return given[1], f"it {match[1]}"
    if (match := NO_PATH.search(message)) and match[1] != "None":
        return match[1], "it is no dotted path such as `my_module.MyClass`"
    return None


def _bad_class(path: str, reason: str, protocols: Mapping[str, type], argv: Sequence[str]) -> str:
    place = next((entry.place for entry in _entries(argv) if entry.text == path), "the configuration")
    top = path.partition(".")[0]
    if not reason and why_untrustworthy(top):
        return f"`{path}` ({place}) is refused: a configuration may not use this part of `{top}`."
    if not reason:
        return f"`{path}` ({place}) may not be imported: if you trust that code, add `--trust {top}`."
    module, _, name = path.rpartition(".")
    known = vars(sys.modules.get(module, object))
    if (protocol := protocols.get(reason.rpartition(" ")[2])) and isinstance(known.get(name), type):
        return f"`{path}` ({place}) cannot be used: {_unlike(known[name], protocol)}"
    classes = [key for key, value in known.items() if isinstance(value, type)]
    hint = f"; {nearest(name, classes)}" if "has no attribute" in reason and module in sys.modules else "."
    return f"`{path}` ({place}) cannot be used: {reason.rstrip('.')}{hint}"


def _protocols(complaints: Sequence[Complaint]) -> dict[str, type]:
    """The protocols among the types of the options, by name."""
    hints, found = [hint for complaint in complaints for hint in complaint.options.values()], {}
    while hints:
        hint = hints.pop()
        hints += get_args(hint) if not isinstance(hint, type) or get_origin(hint) else ()
        if getattr(hint, "_is_protocol", False):
            found[hint.__name__] = hint
    return found


def _unlike(given: type, protocol: type) -> str:
    """Which methods of a class are not those of a protocol, types included, and how to write them."""
    wanted, own = _signatures(protocol), _signatures(given)
    wrong = [f"`{name}{signature}`" for name, signature in wanted.items() if own.get(name) != signature]
    return f"{protocol.__name__} asks for {', '.join(wrong) or 'other methods'}, with these names and types."


def _signatures(kind: type) -> dict[str, inspect.Signature]:
    public = {name: value for name, value in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}
    return {name: inspect.signature(value) for name, value in public.items()}


def _broken_file(argv: Sequence[str], message: str) -> str:
    return next((said for path in config_paths(argv) if (said := problem(path))), message)


def config_paths(argv: Sequence[str]) -> list[Path]:
    """The config files of a command line, in the order they are merged."""
    pairs = zip(argv, [*argv[1:], ""], strict=True)
    named = [
        value if flag in ("-c", "--config") else flag.partition("=")[2] for flag, value in pairs if _is_config(flag)
    ]
    return [Path(name) for name in named if Path(name).is_file()]


def _is_config(flag: str) -> bool:
    return flag in ("-c", "--config") or flag.startswith("--config=")


def _locate(keys: Sequence[str], value: str | None, argv: Sequence[str]) -> tuple[str, str]:
    """The key as the user wrote it and its place; the last word wins, as it does when settings are merged."""
    wanted = [part for key in keys for part in key.removeprefix(f"{argv[0]}.").split(".")]
    found = [entry for entry in _entries(argv) if _follows(entry.parts, wanted)]
    exact = [entry for entry in found if value is not None and entry.text == value]
    for entry in exact or found:
        return ".".join(entry.parts), entry.place
    return ".".join(dict.fromkeys(wanted)), "the configuration"


def _follows(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    rest = iter(parts)
    return parts[-1:] == tuple(wanted[-1:]) and all(part in rest for part in dict.fromkeys(wanted))


def _entries(argv: Sequence[str]) -> Iterator[Entry]:
    """Every setting of the command line, the strongest first."""
    for flag, value in reversed(list(zip(argv, [*argv[1:], ""], strict=True))):
        if flag.startswith("--"):
            key, equals, text = flag[2:].partition("=")
            parts, written = tuple(key.rstrip("+").split(".")), text if equals else value
            yield Entry(parts, written, "command line")
            if written[:1] in ("{", "["):
                with suppress(yaml.YAMLError):
                    yield from _nested(yaml.compose(written, Loader=yaml.SafeLoader), parts, None)
    for path in reversed(config_paths(argv)):
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        yield from _nested(node, (), path)


def _nested(node: yaml.Node | None, parts: tuple[str, ...], path: Path | None) -> Iterator[Entry]:
    if isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            inner = (*parts, *str(key.value).split("."))
            text = child.value if isinstance(child, yaml.ScalarNode) else None
            place = "command line" if path is None else f"{path}, line {key.start_mark.line + 1}"
            yield Entry(inner, text, place)
            yield from _nested(child, inner, path)
    elif isinstance(node, yaml.SequenceNode):
        for child in node.value:
            yield from _nested(child, parts, path)


def _words(hint: Any) -> str:
    """A type in plain words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in PLAIN_WORDS or origin in PLAIN_WORDS:
        return PLAIN_WORDS.get(hint) or PLAIN_WORDS[origin]
    if origin is Annotated:
        return _words(arguments[0])
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin in (Union, UnionType):
        choices = [str(choice) for part in arguments if get_origin(part) is Literal for choice in get_args(part)]
        others = [_words(argument) for argument in arguments if get_origin(argument) is not Literal]
        one_of = [f"one of {', '.join(dict.fromkeys(choices))}"] if choices else []
        return " or ".join(dict.fromkeys(one_of + others))
    if origin in (type, Callable) or origin is getattr(Callable[..., Any], "__origin__", None):
        return "a class path"
    if origin in (list, tuple, set, Sequence, Iterable) or hint in (list, tuple):
        inner = [argument for argument in arguments if argument is not Ellipsis][:1]
        return f"a list, each item {_words(inner[0])}" if inner else "a list"
    return "a class path"
