"""The option `--ckpt_path` of the verbs that use a trained agent, and what it loads."""

import argparse
from pathlib import Path
from typing import Any

from app.agent.agent import Agent
from app.agent.data import load_data
from app.agent.load import load
from app.cli.import_policy import trusted
from app.monitor.main import DEFAULT_ROOT, find_run
from app.runs.checkpoints import Experiment
from app.runs.find_checkpoint import find_checkpoint, require_path
from datamodules.base import EnvDataModule


class RefuseConfig(argparse.Action):
    """Refuse `--config`, which the verbs that train and evaluate take."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Exit with an error."""
        parser.error("no --config is needed, because a checkpoint holds its settings: name it with --ckpt_path")


def add_ckpt_path(parser: argparse.ArgumentParser) -> None:
    """Add the option `--ckpt_path` to a parser."""
    parser.add_argument(
        "--ckpt_path",
        metavar="PATH",
        help="a checkpoint; the folder of a run, for its best one; or `best` (the default) or `last` of the newest run"
        f" in {DEFAULT_ROOT}",
    )
    parser.add_argument("-c", "--config", action=RefuseConfig, help=argparse.SUPPRESS)


def load_agent_and_data(ckpt_path: str | None) -> tuple[Agent, EnvDataModule]:
    """Load the agent and the data of a checkpoint, and print the checkpoint's path.

    Args:
        ckpt_path: path, `best` or `last` of the newest run; None is `best`.

    Raises:
        ConfigurationError: for a checkpoint, an algorithm or an environment that cannot be used.
    """
    agent = load(resolved(ckpt_path), trusted())
    assert agent.path is not None
    print(f"Checkpoint: {agent.path}", flush=True)
    return agent, load_data(agent.path, trusted())


def resolved(ckpt_path: str | None) -> Path:
    """Return the checkpoint, or the folder that holds it, of the option's value.

    Raises:
        ConfigurationError: if the newest run has no last checkpoint, and for an empty value.
    """
    if ckpt_path is not None:
        require_path(ckpt_path)
    if ckpt_path == "last":
        run = find_run(None)
        return find_checkpoint(ckpt_path, Experiment(run.parent, run.name))
    return find_run(None) if ckpt_path in (None, "best") else Path(ckpt_path)
