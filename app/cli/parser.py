"""Parser of the command line: one-sentence errors, and integers in scientific notation."""

import argparse
import functools
import json
import re
import sys
from ast import literal_eval
from collections.abc import Callable, Mapping
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any, ClassVar, NoReturn, get_args, get_origin

import numpy as np
import yaml
from jsonargparse import Namespace, get_loader, set_loader
from jsonargparse._util import NestedArg
from jsonargparse.typing import register_type
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning_utilities.core.enums import StrEnum

from app.class_paths import canonical_path, short_names
from app.cli.config_files import excess
from app.cli.error_messages import ParserMessage, exit_with_error, explain_parse_error
from app.cli.trainer_settings import merge_callbacks_

LOAD_YAML = get_loader("yaml")
"""Loader of YAML in files and in values of the command line."""

SCIENTIFIC = re.compile(r"[-+]?\d+(\.\d*)?[eE]\+?\d+")
"""Integers in scientific notation."""

register_type(np.ndarray, serializer=np.ndarray.tolist, deserializer=np.asarray, fail_already_registered=False)

yaml.SafeDumper.add_multi_representer(StrEnum, lambda dumper, choice: dumper.represent_str(choice.value))
"""Configs are written with Lightning's defaults, some of which are members of an enumeration."""


class ConciseParser(LightningArgumentParser):
    """Parser whose errors are one sentence with exit code 2, without a usage text; accepts 1e6 as an integer."""

    complaints: ClassVar[list[ParserMessage]] = []
    """Messages of this parser and of the parsers of nested classes, innermost first."""

    home: ClassVar[Path] = Path()
    """Working directory of the command line: while a config is read, its folder is the working directory."""

    class_defaults: Namespace | None = None
    """Defaults of the parser of a nested class, from its first use on."""

    verb: str | None = None
    """Verb of Lightning whose settings are parsed; None for the main parser and those of nested classes."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, allow_abbrev=False, **kwargs)

    @classmethod
    def begin(cls) -> None:
        """Clear earlier messages, set the base of relative paths, and limit the size of YAML."""
        set_loader("yaml", load_bounded, exceptions=(yaml.YAMLError,))
        cls.complaints.clear()
        cls.home = Path.cwd()

    def add_class_arguments(self, *args: Any, **kwargs: Any) -> list[str]:
        """Add the arguments of a class; integers can be written as 1e6, exported classes as their names."""
        added = super().add_class_arguments(*args, **kwargs)
        for action in self._actions:
            hint: Any = getattr(action, "_typehint", None) if action.dest in added else None
            if is_whole(hint):
                action._check_type = taking_whole(action._check_type)  # type: ignore[attr-defined]
            if makes_object(hint):
                action._check_type = taking_names(action._check_type)  # type: ignore[attr-defined]
                action.extra_help = lambda: ""  # type: ignore[attr-defined]  # not every class of torch
        return added

    def parse_args(self, args: Any = None, *rest: Any, **kwargs: Any) -> Any:
        """Parse arguments; null in a mapping among a class's settings stays null."""
        nested = args is not None and not self.exit_on_error
        return super().parse_args([*map(self.keep_nulls, args)] if nested else args, *rest, **kwargs)

    def keep_nulls(self, word: str) -> str:
        """Return `--KEY=VALUE`, in the form of JSON, which is YAML too, if VALUE is null or holds null.

        jsonargparse 4.53 writes the value of a part of a class as Python does, and then reads None as a text.
        """
        key, equals, text = word.partition("=")
        if "None" in text:
            with suppress(ValueError, SyntaxError, TypeError):  # not a literal of Python, or one that JSON lacks
                return key + equals + json.dumps(literal_eval(text))
        return word

    def get_defaults(self, *args: Any, **kwargs: Any) -> Namespace:
        """Return the defaults; those of a nested class, which every parse asks for several times, are kept."""
        if self.exit_on_error:  # not of a nested class: it has default config files
            return super().get_defaults(*args, **kwargs)
        if self.class_defaults is None:
            self.class_defaults = super().get_defaults(*args, **kwargs)
        return self.class_defaults.clone()

    def format_help(self, formatter: argparse.HelpFormatter | None = None) -> str:
        """Return the help; of a verb, that of the Trainer's settings, which follows `app.cli.help_text`."""
        if self.verb is None:
            return str(super().format_help(formatter))
        shown = self._action_groups, self.usage, self.description
        trainer = [group for group in self._action_groups if any(map(sets_trainer, group._group_actions))]
        self._action_groups, self.usage, self.description = trainer, argparse.SUPPRESS, None
        try:
            return str(super().format_help(formatter))
        finally:
            self._action_groups, self.usage, self.description = shown

    def dump(self, namespace: Namespace, *args: Any, **kwargs: Any) -> str:
        """Write settings as text, for files, checkpoints and the terminal, with canonical class paths."""
        namespace = namespace.clone()
        make_canonical_(namespace)
        for settings in (namespace, *map(namespace.get, LightningCLI.subcommands())):
            if settings is not None and settings.get("trainer") is not None:
                merge_callbacks_(settings.trainer)
        return super().dump(namespace, *args, **kwargs | {"skip_validation": True})

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Store the message of an inner parser; exit with an explanation of the outermost one's."""
        parser = getattr(ex, "subcommand_parser", None) or self
        options = {action.dest: getattr(action, "_typehint", action.type) for action in parser._actions}
        self.complaints.append(ParserMessage(options, message))
        if self.exit_on_error:
            with chdir(self.home):
                exit_with_error(explain_parse_error(self.complaints, sys.argv[1:]))
        raise argparse.ArgumentError(None, message) from ex


def load_bounded(text: str) -> Any:
    """Read YAML.

    Raises: YAMLError for invalid YAML, and for more values or nesting than `app.cli.config_files` allows.
    """
    if said := excess(text):
        raise yaml.YAMLError(f"Not usable: {said}.")
    return LOAD_YAML(text)


def is_whole(hint: Any) -> bool:
    """Return whether a type means integers, possibly with other types, but no other numbers."""
    kinds = get_args(hint) or (hint,)
    return int in kinds and float not in kinds


def taking_whole(check: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `check`, which converts a value to its type, so that 1e6 becomes 1000000 first."""

    @functools.wraps(check)
    def check_whole(value: Any, **kwargs: Any) -> Any:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, str) and SCIENTIFIC.fullmatch(value) and float(value).is_integer():
            value = str(int(float(value)))
        return check(value, **kwargs)

    return check_whole


def sets_trainer(action: argparse.Action) -> bool:
    """Return whether an option is one of Lightning's Trainer."""
    return action.dest.startswith("trainer.")


def makes_object(hint: Any) -> bool:
    """Return whether a type accepts objects that a config creates from a class path, alone or in a list."""
    if getattr(hint, "_is_protocol", False) or get_origin(hint) is Callable:
        return True
    return any(map(makes_object, get_args(hint)))


def taking_names(check: Callable[..., Any]) -> Callable[..., Any]:
    """Return a type check that also accepts the short names of exported classes."""

    @functools.wraps(check)
    def check_path(value: Any, **kwargs: Any) -> Any:
        return check(expand_names(value), **kwargs)

    return check_path


def expand_names(value: Any) -> Any:
    """Return a value in which short names of exported classes are replaced by their dotted paths."""
    if isinstance(value, str):
        return short_names().get(value, value)
    if isinstance(value, list):
        return [expand_names(each) for each in value]
    if isinstance(value, dict) and "class_path" in value:
        return value | {"class_path": expand_names(value["class_path"])}
    if isinstance(value, Namespace) and "class_path" in value:
        return Namespace(expand_names(vars(value)))
    if isinstance(value, NestedArg) and value.key == "class_path":
        return value._replace(val=expand_names(value.val))
    return value


def make_canonical_(settings: Any) -> None:
    """Replace every class path inside parsed settings by its canonical form, in place."""
    children = vars(settings) if isinstance(settings, Namespace) else settings
    if isinstance(children, Mapping):
        for key, value in children.items():
            if key == "class_path" and isinstance(value, str):
                children[key] = canonical_path(value)  # type: ignore[index]
            else:
                make_canonical_(value)
    elif isinstance(children, list):
        for child in children:
            make_canonical_(child)
