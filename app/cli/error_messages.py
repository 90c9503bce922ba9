"""Turn errors of the parser or a constructor into one sentence on stderr and exit code 2.

The parser reports from the inside out: first the class whose option is wrong, last the whole command line. The
innermost message states the error; the keys of all messages together give the setting, its file and its line.
"""

import argparse
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, Union, get_args, get_origin

import yaml

from app.class_paths import short_names
from app.cli.config_files import compose, problem, shipped_configs
from app.cli.import_policy import why_untrustworthy
from app.cli.setting_owners import SYNONYMS, owners, suggested
from datamodules.core.errors import nearest, public_classes
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

NO_CLASS = "it is neither an exported class nor a dotted path such as `my_module.MyClass`"
COMMAND_LINE = "command line"
"""The place of a setting that no file holds."""


class ParserMessage(NamedTuple):
    """Message of one parser, with its options and their types."""

    options: dict[str, Any]
    message: str


class Entry(NamedTuple):
    """Setting as written by the user: its key in parts, its text (None for a mapping), and its location."""

    parts: tuple[str, ...]
    text: str | None
    place: str


def exit_with_error(sentence: str) -> NoReturn:
    """Print one sentence on stderr and exit with code 2, the code for invalid input.

    Raises:
        SystemExit: always.
    """
    print(printable_line(sentence), file=sys.stderr)
    raise SystemExit(2)


class PlainParser(argparse.ArgumentParser):
    """Parser whose errors are one sentence with exit code 2, without a usage text."""

    def error(self, message: str) -> NoReturn:
        """Exit with an error."""
        exit_with_error(f"{message[:1].upper()}{message[1:]} (`{self.prog} --help` shows the options).")


def explain_parse_error(complaints: Sequence[ParserMessage], argv: Sequence[str]) -> str:
    """Return the error message for a failed parse.

    Args:
        complaints: messages of the parsers, innermost first; the last one is final.
        argv: the verb and its arguments, with config names resolved.
    """
    final = complaints[-1].message
    if final.startswith(("Problems parsing config", "Unexpected config")):
        return _broken_file(argv, final)
    relevant = [c for c in complaints[:-1] if c.message.splitlines()[0] in final] + [complaints[-1]]
    options, message = relevant[0]
    parents = [match[1] for c in reversed(relevant) if (match := KEY.search(c.message))]
    if match := UNKNOWN.search(message):
        return _unknown_key(match[1] or match[2], parents, options, argv, complaints[-1].options)
    if match := REQUIRED.search(message):
        return _missing(match[1].split(", "), parents, argv)
    if match := NO_VALUE.search(message):
        given = [token for token in argv if token.startswith(match[1])]
        return f"`{given[-1] if given else match[1]}` needs a value."
    if path := _class_problem(message):
        return _bad_class(*path, _protocols(complaints), argv)
    if match := KEY.search(message):
        return _wrong_type(match[1], parents, options, message, argv)
    return message


def _unknown_key(
    key: str, parents: list[str], options: dict[str, Any], argv: Sequence[str], outermost: dict[str, Any]
) -> str:
    if not key.startswith("-") and key in argv and not parents:
        config = next((name for name in (key, f"{key}.yaml") if _is_config_file(name)), None)
        cure = f"write `--config {config}`" if config else "every setting is written `--key value`"
        return f"`{key}` is not an option: {cure}."
    key = key.lstrip("-").split("=")[0]
    written, place = _locate([*parents, key], None, argv)
    valid = _settings(options)
    if not valid:
        owner = written.rpartition(".")[0]
        cure = f"name a class first, as in `--{owner} modules.networks.MLP`."
        return f"`{written}` ({place}) is not a setting, because `{owner}` has none yet: {cure}"
    if found := owners(written):
        one, others = ("another class", "that") if len(found) == 1 else ("other classes", "one of them")
        return (
            f"`{written}` ({place}) belongs to {one}: name {others} (class_path {' or '.join(found)}), or leave it out."
        )
    head, _, _ = key.rpartition(".")
    synonyms = SYNONYMS.get(written.rpartition(".")[2], "").split()
    if written.replace(".init_args", "").count(".") > 1 and (
        same := next((name for name in valid if name.rpartition(".")[2] in synonyms), None)
    ):
        return f"`{written}` ({place}) is not a setting: did you mean `{same}`?"
    siblings = [name for name in valid if head and name.startswith(f"{head}.")] or (valid if parents else [])
    if written.rpartition(".")[2] in SYNONYMS or not get_close_matches(key, siblings, n=1):
        meant = suggested(written, _configured(argv), _settings(outermost))
        if meant is not None:
            flag = "--" if place == COMMAND_LINE else ""
            return f"`{written}` ({place}) is not a setting: did you mean `{flag}{meant}`?"
    return f"`{written}` ({place}) is not a setting: {nearest(key, siblings or valid)}"


def dropped_settings(settings: Any, argv: Sequence[str]) -> Iterator[str]:
    """Yield one sentence for every class chosen later that lacks settings of a config file.

    Args:
        settings: of the verb, parsed.
        argv: the verb and what follows it.
    """
    dropped: dict[tuple[str, str, str], list[str]] = {}
    for entry in _entries(argv):
        *above, key, name = ("", *entry.parts)
        made = functools.reduce(lambda owner, part: getattr(owner, part, None), above[1:], settings)
        path, given = getattr(made, "class_path", None), getattr(made, "init_args", None)
        if entry.place != COMMAND_LINE and key == "init_args" and path and name not in (vars(given) if given else ()):
            file = entry.place.rpartition(", line ")[0]
            owner = ".".join(part for part in above[1:] if part != "init_args")
            dropped.setdefault((owner, file, path), []).append(name)
    for (owner, file, path), names in dropped.items():
        yield f"`{owner}` is {path}: of its settings in {file}, {', '.join(reversed(names))} are dropped."


def _settings(options: dict[str, Any]) -> list[str]:
    return [name for name in options if not name.endswith("help") and not name.startswith("print_")]


def _configured(argv: Sequence[str]) -> dict[str, str]:
    """Return the classes of model and data as the user wrote them."""
    found: dict[str, str] = {}
    for parts, text, _ in _entries(argv):
        if text and (parts[1:] == ("class_path",) or (parts in (("model",), ("data",)))):
            found.setdefault(parts[0], text)
    return found


def _wrong_type(key: str, parents: list[str], options: dict[str, Any], message: str, argv: Sequence[str]) -> str:
    match = VALUE.search(message)
    hint = options.get(key, options.get(key.partition(".")[2]))
    return wrong_value(parents, match[1] if match else None, hint, argv)


def wrong_value(keys: Sequence[str], value: str | None, hint: Any, argv: Sequence[str]) -> str:
    """Return the error message for a value that is not of the type `hint`.

    Args:
        keys: keys of the setting, outermost first.
        value: text of the value as the parser read it; None if unknown.
        argv: the verb and its arguments.
    """
    written, place = _locate(keys, value, argv)
    got = f"is `{'null' if value == 'None' else value}`" if value is not None else "has the wrong type"
    return f"`{written}` ({place}) {got}, but it must be {_words(hint)}."


def _missing(keys: list[str], parents: list[str], argv: Sequence[str]) -> str:
    names = [".".join([*parents, key.partition(".")[2] or key]) for key in keys]
    them = "it" if len(names) == 1 else "them"
    cure = f"set {them} in the config or after `--`"
    if not config_paths(argv):
        cure = f"add `--config ppo_fast.yaml` (or another config), or set {them} after `--`"
    return f"The experiment lacks {' and '.join(f'`{name}`' for name in names)}: {cure}."


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
        return match[1], NO_CLASS
    return None


def _bad_class(path: str, reason: str, protocols: Mapping[str, type], argv: Sequence[str]) -> str:
    place = next((entry.place for entry in _entries(argv) if entry.text == path), "the configuration")
    top = path.partition(".")[0]
    if not reason and why_untrustworthy(top):
        return f"`{path}` ({place}) is refused: a configuration may not use this part of `{top}`."
    if not reason:
        return f"`{path}` ({place}) may not be imported: if you trust that code, add `--trust {top}`."
    if reason == NO_CLASS:
        known_names = [*short_names(), *import_module("gymnasium.wrappers").__all__]  # only here: it takes long
        return f"`{path}` ({place}) cannot be used: {reason}; {nearest(path, known_names)}"
    module, _, name = path.rpartition(".")
    known = sys.modules.get(module)
    given = getattr(known, name, None)
    if (protocol := protocols.get(reason.rpartition(" ")[2])) and isinstance(given, type):
        return f"`{path}` ({place}) cannot be used: {_unlike(given, protocol)}"
    hint = f"; {nearest(name, public_classes(known))}" if "has no attribute" in reason and known else "."
    return f"`{path}` ({place}) cannot be used: {reason.rstrip('.')}{hint}"


def _protocols(complaints: Sequence[ParserMessage]) -> dict[str, type]:
    """Return the protocols among the types of the options, by name."""
    hints, found = [hint for complaint in complaints for hint in complaint.options.values()], {}
    while hints:
        hint = hints.pop()
        hints += get_args(hint) if not isinstance(hint, type) or get_origin(hint) else ()
        if getattr(hint, "_is_protocol", False):
            found[hint.__name__] = hint
    return found


def _unlike(given: type, protocol: type) -> str:
    """Return which methods of a class violate a protocol, types included, and their required signatures."""
    wanted, own = _signatures(protocol), _signatures(given)
    wrong = [f"`{name}{signature}`" for name, signature in wanted.items() if own.get(name) != signature]
    return f"{protocol.__name__} asks for {', '.join(wrong) or 'other methods'}, with these names and types."


def _signatures(kind: type) -> dict[str, inspect.Signature]:
    public = {name: value for name, value in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}
    return {name: inspect.signature(value) for name, value in public.items()}


def _broken_file(argv: Sequence[str], message: str) -> str:
    return next((said for path in config_paths(argv) if (said := problem(path))), message)


def config_paths(argv: Sequence[str]) -> list[Path]:
    """Return the config files of a command line, in the order in which they are merged."""
    pairs = zip(argv, [*argv[1:], ""], strict=True)
    named = [
        value if flag in ("-c", "--config") else flag.partition("=")[2] for flag, value in pairs if _is_config(flag)
    ]
    return [Path(name) for name in named if Path(name).is_file()]


def _is_config(flag: str) -> bool:
    return flag in ("-c", "--config") or flag.startswith("--config=")


def _is_config_file(name: str) -> bool:
    """Return whether a name is that of a YAML file or a shipped config."""
    return name in shipped_configs() or (Path(name).suffix in (".yaml", ".yml") and Path(name).is_file())


def _locate(keys: Sequence[str], value: str | None, argv: Sequence[str]) -> tuple[str, str]:
    """Return the key as the user wrote it and its location; the last occurrence counts, as in merging."""
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
    """Yield every setting of the command line, highest precedence first."""
    for flag, value in reversed(list(zip(argv, [*argv[1:], ""], strict=True))):
        if flag.startswith("--"):
            key, equals, text = flag[2:].partition("=")
            parts, written = tuple(key.rstrip("+").split(".")), text if equals else value
            yield Entry(parts, written, COMMAND_LINE)
            if written[:1] in ("{", "["):
                yield from _nested(compose(written), parts, None)
    for path in reversed(config_paths(argv)):
        yield from _nested(compose(path.read_text(encoding="utf-8")), (), path)


def _nested(node: yaml.Node | None, parts: tuple[str, ...], path: Path | None) -> Iterator[Entry]:
    if isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            inner = (*parts, *str(key.value).split("."))
            text = child.value if isinstance(child, yaml.ScalarNode) else None
            place = COMMAND_LINE if path is None else f"{path}, line {key.start_mark.line + 1}"
            yield Entry(inner, text, place)
            yield from _nested(child, inner, path)
    elif isinstance(node, yaml.SequenceNode):
        for child in node.value:
            yield from _nested(child, parts, path)


def _words(hint: Any) -> str:
    """Describe a type in plain words."""
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
