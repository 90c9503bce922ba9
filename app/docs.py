"""Write the reference pages of the documentation from the code: `python -m app docs`."""

import argparse
import inspect
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import yaml
from jsonargparse import ArgumentParser
from lightning.pytorch import Callback, LightningDataModule

from app.benchmark.main import make_parser as benchmark_parser
from app.class_paths import exported_classes
from app.cli.config_files import configs_folder, shipped_configs
from app.cli.error_messages import exit_with_error
from app.cli.help_text import LIGHTNING_OPTIONS
from app.compare.main import make_parser as compare_parser
from app.diagnose.main import make_parser as diagnose_parser
from app.elo.main import make_parser as elo_parser
from app.envs.main import make_parser as envs_parser
from app.export.main import make_parser as export_parser
from app.metrics import SECTIONS, Section
from app.monitor.main import make_parser as monitor_parser
from app.play.main import make_parser as play_parser
from app.plot.main import make_parser as plot_parser
from app.verbs import VERB_HELP
from app.verify.main import make_parser as verify_parser
from datamodules.core.exports import class_path
from modules.base.algorithm import Algorithm
from modules.ppo.auxiliary.base import AuxiliaryLoss

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"

GENERATED = "<!-- Written by `python -m app docs`: change the code, then run it again. -->\n"

GIVEN = {"spaces", "obs_shape"}
"""Arguments that are set by the command line or the algorithm."""

MADE = {"env", "num_options"}
"""Arguments without a default that a wrapper and a controller of options are given."""

SHAPED = ("modules.networks.", "modules.optim.")
"""Packages of classes, except latent models, whose arguments without a default are set by the algorithm."""

KINDS = {
    "algorithms": ("Algorithms", "`--model CLASS`, then `--model.NAME VALUE`"),
    "networks": ("Networks", "`--model.network CLASS`, then `--model.network.NAME VALUE`"),
    "auxiliary_losses": ("Auxiliary losses", "an entry of `model.auxiliary_losses` in a config"),
    "options": ("Options and curiosity", "`--model.controller CLASS`, then `--model.controller.NAME VALUE`"),
    "latent_models": ("Latent models", "`--model.model CLASS`, then `--model.model.NAME VALUE`"),
    "exploration": ("Exploration", "`--model.exploration CLASS`, then `--model.exploration.NAME VALUE`"),
    "acquisitions": ("Acquisitions", "an entry of `model.exploration.init_args.acquisitions` in a config"),
    "opponents": ("Opponents", "an entry of `data.opponents` in a config"),
    "data": ("Data", "`--data CLASS`, then `--data.NAME VALUE`"),
    "stored_data": ("Stored data", "`--data CLASS`, then `--data.NAME VALUE`"),
    "wrappers": ("Wrappers", "an entry of `data.wrappers` or `data.train_wrappers` in a config"),
    "callbacks": ("Callbacks", "an entry of `trainer.callbacks` in a config"),
}
"""Pages of settings: title, and how a setting is written."""

PARSERS = {
    "play": play_parser,
    "envs": envs_parser,
    "export": export_parser,
    "verify": verify_parser,
    "benchmark": benchmark_parser,
    "diagnose": diagnose_parser,
    "compare": compare_parser,
    "elo": elo_parser,
    "plot": plot_parser,
    "monitor": monitor_parser,
}


def main() -> None:
    """Write every reference page into `docs/reference`.

    Raises:
        SystemExit: with code 2 and one sentence if the program is installed without its documentation.
    """
    if not FOLDER.parent.is_dir():
        exit_with_error(f"There is no folder {FOLDER.parent}: run `python -m app docs` in a clone of the repository.")
    if sys.argv[2:]:
        exit_with_error(f"`docs` takes no options, and was given {' '.join(sys.argv[2:])}.")
    for name, text in pages().items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)


def pages() -> dict[str, str]:
    """Return the text of every reference page by its file name."""
    settings = {f"settings/{kind}.md": settings_page(kind, found) for kind, found in configurable().items()}
    return {
        "configs.md": configs_page(),
        "metrics.md": metrics_page(SECTIONS),
        "settings.md": settings_index(),
        "cli.md": cli_page(),
        **settings,
    }


def configs_page() -> str:
    """Return the table of the shipped configs, from the headers of their files."""
    rows = []
    for name in shipped_configs():
        head = [line.removeprefix("# ") for line in header(configs_folder() / name)]
        (expected,) = [line.removeprefix("Expect: ") for line in head if line.startswith("Expect: ")]
        rows.append((f"`{name}`", head[0].rstrip("."), expected.rstrip(".")))
    text = "Train one with `python -m app fit --config NAME`. `eval/...` tags are explained in [metrics](metrics.md)."
    return page("Configs", text, table(("config", "what it is", "expected"), rows))


def header(path: Path) -> Iterator[str]:
    """Yield the comment lines at the top of a config."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            return
        yield line


def metrics_page(sections: Iterable[Section]) -> str:
    """Return the tables of all logged tags."""
    parts = [
        "The x axis of every curve is `env_steps`: valid environment steps, summed over all ranks. What an environment"
        " reports at the end of an episode appears beside the return (`rollout/NAME_mean`, `eval/NAME_mean`,"
        " `eval/NAME_max`)."
    ]
    for section in sections:
        rows = [(", ".join(f"`{tag}`" for tag in tags.split()), unit, text) for tags, unit, text in section.rows]
        parts += [f"## {section.title}", section.text, table(("tag", "unit", "meaning"), rows)]
    return page("Metrics", *filter(None, parts))


def settings_index() -> str:
    """Return the page that leads to the settings of each kind of class."""
    rows = [(f"[{title}](settings/{kind}.md)", usage) for kind, (title, usage) in KINDS.items()]
    text = (
        "Every argument of a class that a config can name is a setting. `python -m app fit --config NAME"
        " --print_config` shows what a run would use; `--model.help CLASS` shows the same texts in the terminal."
        " A class of these pages is given by its name, as in `--model PPO`; a class of yours by its dotted path."
        " `trainer.*` settings are those of Lightning's `Trainer`."
    )
    return page("Settings", text, table(("kind", "how to set"), rows))


def settings_page(kind: str, classes: Iterable[type]) -> str:
    """Return the tables of settings of some classes."""
    title, usage = KINDS[kind]
    parts = [f"Set with {usage}."]
    for cls in classes:
        parts += [f"## {cls.__name__}", f"`{class_path(cls)}`: {summary(cls)}"]
        if rows := list(setting_rows(cls)):
            parts.append(table(("setting", "type", "default", "meaning"), rows))
    return page(title, *parts)


def configurable() -> dict[str, list[type]]:
    """Return the classes that the packages export for configs, by kind."""
    found: dict[str, list[type]] = {kind: [] for kind in KINDS}
    for cls in exported_classes():
        found[kind_of(cls)].append(cls)
    return found


def kind_of(cls: type) -> str:
    """Return the page of a class."""
    if cls.__module__.startswith("datamodules.offline"):
        return "stored_data"
    bases = {
        "algorithms": Algorithm,
        "auxiliary_losses": AuxiliaryLoss,
        "data": LightningDataModule,
        "callbacks": Callback,
    }
    for kind, base in bases.items():
        if issubclass(cls, base):
            return kind
    words = {
        "acquisitions": "acquisitions",
        "exploration": "exploration",
        "wrappers": "wrappers",
        "latent": "latent_models",
        "observed": "latent_models",
        "networks": "networks",
        "opponents": "opponents",
        "chaser": "opponents",
        "forager": "opponents",
    }
    return next((kind for word, kind in words.items() if word in cls.__module__), "options")


def given_arguments(cls: type, required: set[str]) -> set[str]:
    """Return the arguments of a class that no config sets, given those without a default."""
    if cls.__module__.startswith(SHAPED) and ".latent." not in cls.__module__:
        return GIVEN | required
    return GIVEN if issubclass(cls, LightningDataModule) else GIVEN | (required & MADE)


def setting_rows(cls: type) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, type, default and help of every argument of a class that a config sets."""
    required = {name for name, value in inspect.signature(cls).parameters.items() if value.default is value.empty}
    parser = ArgumentParser()
    parser.add_class_arguments(cls, None, skip=given_arguments(cls, required))
    for action in parser._actions[1:]:
        if action.dest.endswith(".help"):
            continue
        default = "required" if action.dest in required else f"`{default_text(action.default)}`"
        hint = getattr(action, "_typehint", action.type)
        yield f"`{action.dest}`", type_text(hint), default, " ".join((action.help or "").split())


def type_text(hint: Any) -> str:
    """Return a type in the words of a config."""
    kind, inner = get_origin(hint), get_args(hint)
    if kind is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if kind in (Union, types.UnionType):
        return " or ".join(type_text(part) for part in inner)
    if kind in (list, tuple, dict):
        return kind.__name__
    if hint is type(None):
        return "null"
    return hint.__name__ if hint in (bool, int, float, str, dict, list) else "class"


def default_text(value: Any) -> str:
    """Return a default as a config would write it, a class with its arguments."""
    if isinstance(value, Mapping) and "class_path" in value:
        settings = ", ".join(f"{name}={default_text(each)}" for name, each in value.get("init_args", {}).items())
        return f"{value['class_path']}({settings})" if settings else str(value["class_path"])
    if isinstance(value, float):
        return repr(value)
    if inspect.isclass(value):
        return class_path(value)
    if inspect.isfunction(value):
        return f"{value.__module__}.{value.__qualname__}"
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n").strip()


def summary(cls: type) -> str:
    """Return the first paragraph of a class's docstring on one line."""
    return " ".join((inspect.getdoc(cls) or "").partition("\n\n")[0].split())


def cli_page() -> str:
    """Return the verbs with their options."""
    parts = ["`python -m app VERB [options]`.", table(("verb", "what it does"), [(f"`{v}`", s) for v, s in verbs()])]
    lightning = table(("option", "meaning"), [(f"`{option}`", text) for option, text in LIGHTNING_OPTIONS])
    parts += ["## fit, validate, test, predict", lightning]
    for verb, make_parser in PARSERS.items():
        parts += [f"## {verb}", table(("option", "meaning"), option_rows(make_parser()))]
        if verb == "diagnose":
            parts.append("It takes the options of `fit` as well.")
    return page("Command line", *parts)


def verbs() -> Iterator[tuple[str, str]]:
    """Yield every verb for users with its help text."""
    return ((verb, sentence) for verb, sentence in VERB_HELP.items() if verb != "docs")


def option_rows(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Yield every option of a verb with its help."""
    for action in (each for each in parser._actions if each.help != argparse.SUPPRESS):
        if isinstance(action, argparse._HelpAction):
            continue
        value = action.metavar or ("" if action.nargs == 0 else action.dest.upper())
        name = ", ".join(action.option_strings)
        yield f"`{f'{name} {value}'.strip()}`", " ".join((action.help or "").split())


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, ("---",) * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(title: str, *parts: str) -> str:
    """Return a page of Markdown."""
    return "\n\n".join([f"{GENERATED}\n# {title}", *parts]) + "\n"
