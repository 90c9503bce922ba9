"""`python -m app envs [PATTERN]`: list environments; `--check ID`: check one, and list what to fix."""

import argparse
import json
import logging
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from app.cli.error_messages import PlainParser, exit_with_error
from app.cli.import_policy import trust_advice, trusted, untrusted_environments
from app.envs.check import check_environment
from app.envs.listing import list_environments
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.printable import printable


def main() -> None:
    """List environments, or check one.

    Raises:
        SystemExit: with code 1 if a checked environment has to be fixed; with code 2 and one sentence for invalid
            input.
    """
    options = parsed(sys.argv[2:])
    logging.getLogger("gymnasium").setLevel(logging.ERROR)
    try:
        if options.check is None:
            with warnings.catch_warnings(action="ignore"):
                for line in list_environments(options.pattern, options.speed):
                    print(printable(line), flush=True)
            return
        sound = check_environment(options.check, options.env_kwargs, lambda line: print(printable(line), flush=True))
    except ConfigurationError as error:
        exit_with_error(str(error))
    if not sound:
        raise SystemExit(1)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the verb's options."""
    parser = PlainParser("python -m app envs", description="List environments, or check one.", allow_abbrev=False)
    parser.add_argument(
        "pattern", nargs="?", metavar="PATTERN", help="part of an id, or a pattern such as 'ALE/*' or 'minigrid:*'"
    )
    parser.add_argument("--speed", action="store_true", help="measure env steps per second with random actions")
    parser.add_argument("--check", metavar="ID", help="judge the environment of this id or dotted path")
    parser.add_argument("--env_kwargs", type=mapping, default={}, help="JSON object of arguments for --check")
    return parser


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """Parse and check the verb's options.

    Raises:
        SystemExit: with code 2 and one sentence if they are invalid, or name an untrusted module.
    """
    options = make_parser().parse_args(words)
    if options.check is not None and (options.pattern or options.speed):
        exit_with_error("--check judges one environment: give it without PATTERN and --speed.")
    for env in untrusted_environments({"env": [name for name in (options.check, options.pattern) if name]}, trusted()):
        exit_with_error(trust_advice(env))
    return options


def mapping(text: str) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ArgumentTypeError: for another text.
    """
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text} is not a JSON object such as '{{\"size\": 8}}'")
    return value
