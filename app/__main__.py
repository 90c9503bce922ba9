"""Entry point `python -m app VERB [options]`; heavy modules are imported after the choice of the verb."""

import errno
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path

from app.cli.config_args import require_config, resolve_config_args
from app.cli.config_files import shipped_configs
from app.cli.error_messages import config_paths, exit_with_error
from app.cli.help_text import introduction
from app.cli.import_policy import TRUST_VARIABLE, trusted, why_untrustworthy
from app.verbs import VERB_HELP, VERBS, WITHOUT_TORCH
from datamodules.core.errors import UnwritableFileError, nearest
from datamodules.core.files.printable import printable_line

CANNOT_WRITE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}
"""Errors of a full or read-only disk."""
PACKAGES = ("app", "modules", "datamodules", "callbacks")


def main() -> None:
    """Run a verb.

    Raises:
        SystemExit: with code 2 and one sentence for invalid input and for a file that cannot be written, with 130 after
            a Ctrl-C.
    """
    replace_unprintable()
    try:
        run_verb()
    except KeyboardInterrupt:  # before the run has installed its signal handlers: there is nothing to save
        raise SystemExit(130) from None
    except OSError as error:
        if error.errno not in CANNOT_WRITE and not isinstance(error, UnwritableFileError):
            raise
        resume = ", then resume with --ckpt_path last" if sys.argv[1] == "fit" else ""
        exit_with_error(
            f"{error.filename or 'A file'} cannot be written: {error.strerror}. Earlier files are intact: make"
            f" room, or choose another folder{resume}."
        )


def run_verb() -> None:
    """Choose the verb, prepare the command line, and run it.

    Raises:
        SystemExit: with code 2 and one sentence for invalid input.
    """
    check_packages()
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    if verb in ("-h", "--help"):
        print(usage())
        raise SystemExit(0)
    if not verb:
        print(usage(), file=sys.stderr)
        raise SystemExit(2)
    if verb not in VERBS:
        exit_with_error(
            f"There is no verb `{verb}`: {nearest(verb, VERBS)} Example: python -m app fit --config ppo_fast.yaml"
        )
    parse_trust_flags()
    sys.argv[1:] = resolve_config_args(sys.argv[1:])
    configs = config_paths(sys.argv)
    for path in configs:
        require_config(path)
    if VERBS[verb] == VERBS["fit"] and not {"-h", "--help"}.isdisjoint(sys.argv):
        print(introduction(verb), flush=True)
    announce(verb, configs)
    module, _, function = VERBS[verb].partition(":")
    gc.disable()  # imports create many objects and no garbage; collections would only traverse them
    try:
        imported = import_module(module)
    finally:
        gc.enable()
    getattr(imported, function)()


def announce(verb: str, configs: Sequence[Path]) -> None:
    """Print the verb and its configs on stderr before torch is imported, which takes seconds; not on started ranks."""
    if verb not in WITHOUT_TORCH and "torch" not in sys.modules and "LOCAL_RANK" not in os.environ:
        command = " ".join([verb, *(path.name for path in configs)])
        print(printable_line(f"{command}: loading torch ..."), file=sys.stderr, flush=True)


def replace_unprintable() -> None:
    """Replace characters that the terminal cannot display by `?` instead of raising an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def usage() -> str:
    """Return the list of verbs."""
    rows = "\n".join(f"  {verb:<11}{VERB_HELP[verb]}" for verb in VERBS)
    return (
        f"python -m app VERB [--config FILE ...] [--key value ...] [--trust MODULE ...]\n\n{rows}\n\n"
        f"Example: python -m app fit --config ppo_fast.yaml --data.num_envs 64\n"
        f"Configs: {', '.join(shipped_configs())}\n"
        "All settings of a verb: python -m app fit --help; what a run would use: add --print_config."
    )


def check_packages() -> None:
    """Refuse to start if another folder shadows one of Leyden's packages, which have common names."""
    folders = {}
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            exit_with_error(
                f"The package `{name}` is missing or shadowed by a file of that name: start from another folder."
            )
        folders[name] = Path(next(iter(spec.submodule_search_locations))).resolve().parent
    for name, folder in folders.items():
        if folder != folders["app"]:
            exit_with_error(
                f"`{name}` was found in {folder}, but `app` in {folders['app']}: start from another folder."
            )


def parse_trust_flags() -> None:
    """Move every `--trust MODULE` from the command line to the environment, and trust the working directory."""
    names, rest, tokens = list(trusted()), [], iter(sys.argv)
    for token in tokens:
        flag, equals, name = token.partition("=")
        if flag != "--trust":
            rest.append(token)
            continue
        name = name if equals else next(tokens, "")
        if reason := why_untrustworthy(name):
            exit_with_error(reason)
        names.append(name)
    if names:
        os.environ[TRUST_VARIABLE] = ",".join(dict.fromkeys(names))
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        sys.path.append(str(Path.cwd()))
    sys.argv[:] = rest


if __name__ == "__main__":
    main()
