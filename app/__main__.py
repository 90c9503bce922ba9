"""Entry point `python -m app VERB [options]`: the table of verbs; heavy modules are imported after the choice."""

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path

from app.cli.config_files import configs_folder, problem, shipped_configs
from app.cli.error_messages import config_paths, exit_with_error, nearest
from app.cli.import_policy import TRUST_VARIABLE, trusted, why_untrustworthy
from datamodules.core.errors import UnwritableFileError
from datamodules.core.files.printable import printable_line

VERBS = {
    "fit": "app.cli.main:main",
    "validate": "app.cli.main:main",
    "test": "app.cli.main:main",
    "predict": "app.cli.main:main",
    "play": "app.play.main:main",
    "envs": "app.envs.main:main",
    "export": "app.export.main:main",
    "verify": "app.verify.main:main",
    "benchmark": "app.benchmark.main:main",
    "diagnose": "app.diagnose.main:main",
    "compare": "app.compare.main:main",
    "plot": "app.plot.main:main",
    "monitor": "app.monitor.main:main",
    "docs": "app.docs:main",
}
VERB_HELP = {
    "fit": "train an agent",
    "validate": "evaluate whole greedy episodes as during training",
    "test": "evaluate a checkpoint and print the statistics",
    "predict": "write trajectories",
    "play": "watch episodes of a checkpoint, as a video or in a window",
    "envs": "list environments, or check one and say what to mend",
    "export": "write the decision of a checkpoint as ONNX or a torch.export program, with a model card",
    "verify": "check what training relies on: determinism, resume, compile, two ranks, export",
    "benchmark": "time a config, beside another one or a peer",
    "diagnose": "find out where the time goes and what to change",
    "compare": "settings times seeds: steps to a threshold, final values, curves",
    "plot": "curves of any runs as a figure, seeds of a config as a band",
    "monitor": "watch a run and the machine in a terminal",
    "docs": "write the reference pages of the documentation",
}
WITHOUT_TORCH = {"plot", "monitor"}
"""The verbs that start without torch."""
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
    except KeyboardInterrupt:  # before the run could take the signal over: nothing is lost
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
    announce(verb, configs)
    module, _, function = VERBS[verb].partition(":")
    getattr(import_module(module), function)()


def announce(verb: str, configs: Sequence[Path]) -> None:
    """Print on stderr what starts, if importing torch takes seconds; not on ranks started by a run."""
    if verb not in WITHOUT_TORCH and "torch" not in sys.modules and "LOCAL_RANK" not in os.environ:
        what = " ".join([verb, *(path.name for path in configs)])
        print(printable_line(f"{what}: loading torch ..."), file=sys.stderr, flush=True)


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
    """Refuse to start if another folder shadows one of our packages, which have common names."""
    homes = {}
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            exit_with_error(
                f"The package `{name}` is missing or shadowed by a file of that name: start from another folder."
            )
        homes[name] = Path(next(iter(spec.submodule_search_locations))).resolve().parent
    for name, home in homes.items():
        if home != homes["app"]:
            exit_with_error(f"`{name}` was found in {home}, but `app` in {homes['app']}: start from another folder.")


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


def resolve_config_args(argv: list[str]) -> list[str]:
    """Return the command line with config names replaced by their paths."""
    resolved: list[str] = []
    for index, token in enumerate(argv):
        flag, equals, name = token.partition("=")
        if index and argv[index - 1] in ("-c", "--config"):
            resolved.append(find_config(token))
        elif flag == "--config" and equals:
            resolved.append(f"--config={find_config(name)}")
        else:
            resolved.append(token)
    return resolved


def find_config(name: str) -> str:
    """Return the path of a config: in the working directory, else, for a bare name, among the shipped ones."""
    shipped = configs_folder() / name
    if "://" in name:
        exit_with_error(f"The config `{name}` is a URL: download it, read it, and give the local file.")
    if Path(name).is_file():
        return name
    if name == Path(name).name and shipped.is_file():
        return str(shipped)
    exit_with_error(
        f"There is no config `{name}`, neither in the working directory nor in"
        f" {configs_folder()}: {nearest(name, shipped_configs())}"
    )


def require_config(path: str | Path) -> str:
    """Return the path of a config, after a check that it is UTF-8, YAML and a mapping.

    Raises:
        SystemExit: with one sentence and code 2 if it is not.
    """
    if said := problem(Path(path)):
        exit_with_error(said)
    return str(path)


if __name__ == "__main__":
    main()
