"""The option `--ckpt_path` of the verbs that use a trained agent, and what it loads."""

import argparse

from app.agent.agent import Agent
from app.agent.data import load_data
from app.agent.load import load
from app.cli.import_policy import trusted
from app.monitor.main import DEFAULT_ROOT, find_run
from datamodules.base import EnvDataModule


def add_ckpt_path(parser: argparse.ArgumentParser) -> None:
    """Add the option `--ckpt_path` to a parser."""
    parser.add_argument(
        "--ckpt_path",
        metavar="PATH",
        help=f"a checkpoint, or the folder of a run: its best one (the newest run in {DEFAULT_ROOT})",
    )


def load_agent_and_data(ckpt_path: str | None) -> tuple[Agent, EnvDataModule]:
    """Load the agent and the data of a checkpoint, that of the newest run if None, and print the checkpoint's path.

    Raises:
        ConfigurationError: for a checkpoint, an algorithm or an environment that cannot be used.
    """
    agent = load(ckpt_path or str(find_run(None)), trusted())
    assert agent.path is not None
    print(f"Checkpoint: {agent.path}", flush=True)
    return agent, load_data(agent.path, trusted())
