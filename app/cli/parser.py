"""The parser of the command line: every error one sentence, and whole numbers as people write them."""

import argparse
import functools
import re
import sys
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any, ClassVar, NoReturn, get_args

import yaml
from jsonargparse import get_loader, set_loader
from lightning.pytorch.cli import LightningArgumentParser
from lightning_utilities.core.enums import StrEnum

from app.cli.config_files import excess
from app.cli.error_messages import Complaint, explain, refuse

LOAD_YAML = get_loader("yaml")
"""How the parser of the command line reads YAML, in files and in values."""

SCIENTIFIC = re.compile(r"[-+]?\d+(\.\d*)?[eE]\+?\d+")
"""How whole numbers are written where there are many zeros."""

yaml.SafeDumper.add_multi_representer(StrEnum, lambda dumper, choice: dumper.represent_str(choice.value))
"""Configs are written with Lightning's defaults, some of which are members of an enumeration."""


class OneSentenceParser(LightningArgumentParser):
    """A parser whose every error is one sentence, exit code 2, and no usage dump; it takes 1e6 for a whole number."""

    complaints: ClassVar[list[Complaint]] = []
    """What this parser and the parsers of the classes inside said, innermost first."""

    home: ClassVar[Path] = Path()
    """Where the command line was given: while a config is read, its folder is the working directory."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, allow_abbrev=False, **kwargs)

    @classmethod
    def begin(cls) -> None:
        """Forget the complaints of before; relative paths begin here; YAML of any size is not read."""
        set_loader("yaml", load_bounded, exceptions=(yaml.YAMLError,))
        cls.complaints.clear()
        cls.home = Path.cwd()

    def add_class_arguments(self, *args: Any, **kwargs: Any) -> list[str]:
        """Add the arguments of a class; those of whole numbers can be written as 1e6."""
        added = super().add_class_arguments(*args, **kwargs)
        for action in self._actions:
            if action.dest in added and is_whole(getattr(action, "_typehint", None)):
                action._check_type = taking_whole(action._check_type)  # type: ignore[attr-defined]
        return added

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Remember what an inner parser says; explain what the outermost one says."""
        parser = getattr(ex, "subcommand_parser", None) or self
        options = {action.dest: getattr(action, "_typehint", action.type) for action in parser._actions}
        self.complaints.append(Complaint(options, message))
        if self.exit_on_error:
            with chdir(self.home):
                refuse(explain(self.complaints, sys.argv[1:]))
        raise argparse.ArgumentError(None, message) from ex


def load_bounded(text: str) -> Any:
    """Read YAML.

    Raises: YAMLError for what is no YAML, and for more values or nesting than `app.cli.config_files` allows.
    """
    if said := excess(text):
        raise yaml.YAMLError(f"Not usable: {said}.")
    return LOAD_YAML(text)


def is_whole(hint: Any) -> bool:
    """Whether a type means whole numbers, with or without other things, but no others."""
    kinds = get_args(hint) or (hint,)
    return int in kinds and float not in kinds


def taking_whole(check: Callable[..., Any]) -> Callable[..., Any]:
    """`check`, which judges a value and returns it as its type, after 1e6 has become 1000000."""

    @functools.wraps(check)
    def check_whole(value: Any, **kwargs: Any) -> Any:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, str) and SCIENTIFIC.fullmatch(value) and float(value).is_integer():
            value = str(int(float(value)))
        return check(value, **kwargs)

    return check_whole
