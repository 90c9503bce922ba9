"""The help of Lightning's verbs before Lightning's own: data, model, callbacks and their classes; needs no torch."""

from collections.abc import Iterable, Iterator
from textwrap import fill

import modules
from app.class_paths import short_names
from app.verbs import VERB_HELP
from modules import networks

WIDTH = 79
"""Characters of a line."""

LIGHTNING_OPTIONS = (
    ("--config FILE", "a config; repeatable, later ones win; a bare name is also looked up in `configs/`"),
    ("--KEY VALUE", "override one setting, such as `--data.num_envs 64`"),
    ("--ckpt_path PATH", "a checkpoint to resume or evaluate: a file, `last`, `best`, or a run's folder"),
    ("--seed_everything N", "the seed (1)"),
    ("--trust MODULE", "allow a module of yours that the config names; repeatable"),
    ("--print_config", "print the merged settings and exit; the output is a config"),
    ("--help", "list every setting of the verb; of one class: `--model.help CLASS`"),
)
"""The options that are the same for every verb of Lightning's, and their meanings."""


def introduction(verb: str) -> str:
    """Return the part of a verb's help that stands before Lightning's settings."""
    about = f"{VERB_HELP[verb].capitalize()}. A class is given by its name below, your own by its dotted path."
    options = [(name, text.replace("`", "")) for name, text in LIGHTNING_OPTIONS]
    parts = (
        f"usage: python -m app {verb} [--config FILE ...] [--KEY VALUE ...] [--trust MODULE ...]",
        fill(about, WIDTH),
        section("data: --data CLASS, then --data.NAME VALUE", data_rows()),
        section("model: --model CLASS, then --model.NAME VALUE", model_rows()),
        section("callbacks: --trainer.callbacks+ CLASS, then --trainer.callbacks.NAME VALUE", callback_rows()),
        section("options:", options),
    )
    return "\n\n".join(parts) + "\n"


def data_rows() -> Iterator[tuple[str, str]]:
    """Yield the kinds of data."""
    wrappers = short_names("datamodules.wrappers")
    yield "classes", listed(short_names("datamodules").keys() - wrappers.keys())
    yield "wrappers", f"{listed(wrappers)}, and those of gymnasium.wrappers (--data.wrappers+ CLASS)"
    yield "their settings", "--data.help CLASS"


def model_rows() -> Iterator[tuple[str, str]]:
    """Yield the algorithms and the parts of them that can be chosen."""
    heads = {name for name, module in networks.EXPORTS.items() if ".heads." in module}
    yield "algorithms", listed(modules.ALGORITHMS)
    yield "networks", f"{listed(networks.EXPORTS.keys() - heads)} (--model.network CLASS)"
    yield "heads, critics", listed(heads)
    yield "optimizers", f"{listed(short_names('modules.optim'))}, and those of torch.optim (--model.optimizer CLASS)"
    yield "other parts", listed(modules.EXPORTS.keys() - modules.ALGORITHMS.keys())
    yield "scripted options", f"{listed(short_names('datamodules.envs.four_rooms'))}, and those of datamodules.trading"
    scripted = short_names("datamodules.envs.carball") | short_names("datamodules.envs.gridworld")
    yield "scripted opponents", f"{listed(scripted)} (--data.opponents CLASS)"
    yield "exploration", listed(short_names("modules.exploration"))
    yield "latent models", listed(short_names("modules.networks.latent"))
    yield "their settings", "--model.help CLASS; of a network: --model.help CLASS --model.network.help CLASS"


def callback_rows() -> Iterator[tuple[str, str]]:
    """Yield the callbacks."""
    yield "classes", listed(short_names("callbacks"))
    yield "their settings", "--trainer.callbacks.help CLASS"


def section(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return a title above rows in two columns."""
    lines = [
        fill(text, WIDTH, initial_indent=f"  {name:<21}", subsequent_indent=" " * 23, break_on_hyphens=False)
        for name, text in rows
    ]
    return "\n".join([title, *lines])


def listed(names: Iterable[str]) -> str:
    """Return names in the order of the alphabet."""
    return ", ".join(sorted(names))
