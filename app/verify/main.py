"""`python -m app verify --config FILE`: check determinism, resume, compilation, ranks and export of a config."""

import argparse
import json
import logging
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from app.agent.data import load_data
from app.agent.load import load
from app.child_processes import exits_with_children
from app.cli.error_messages import PlainParser, exit_with_error
from app.cli.import_policy import trusted
from app.peers.base import UNREACHABLE_STEPS
from app.verify.checks import Finding, compiled, contract, determinism, exported, ranks, repetition, resumption
from app.verify.short_run import Outcome, settings, short_run
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.printable import printable

ITERATIONS = 8
"""Iterations of a run; half of them before a resume."""

CHECKS = ("contract", "determinism", "repeat", "resume", "compile", "ranks", "export")
"""All checks, in the order in which they are made."""


def main() -> None:
    """Make the checks and print a report.

    Raises:
        SystemExit: with code 1 if a check fails, 2 and one sentence for invalid input.
    """
    options, words = make_parser().parse_known_args(sys.argv[2:])
    words = [word for config in options.config for word in ("--config", config)] + words
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    findings = []
    try:
        with exits_with_children(), tempfile.TemporaryDirectory() as folder:
            for finding in verify(words, Path(folder), options.only or CHECKS):
                findings.append(finding)
                print(printable(f"{finding.name:<12}{finding.status:<8}{finding.text}"), flush=True)
    except ConfigurationError as error:
        exit_with_error(str(error))
    failed = [finding.name for finding in findings if finding.status == "fails"]
    print(f"{', '.join(failed)}: fix what fails." if failed else "Nothing fails.")
    if failed:
        raise SystemExit(1)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the verb's options; further words override settings, as those of `fit` do."""
    parser = PlainParser("python -m app verify", description=__doc__, allow_abbrev=False)
    parser.add_argument("-c", "--config", action="append", required=True, help="the experiment; several merge")
    parser.add_argument("--only", nargs="+", choices=CHECKS, metavar="CHECK", help=f"among {', '.join(CHECKS)} (all)")
    return parser


def verify(words: Sequence[str], folder: Path, checks: Sequence[str]) -> Iterator[Finding]:
    """Yield the findings of the checks.

    Args:
        words: words that select the config and override its settings.
        folder: an empty folder for the runs.

    Raises:
        ConfigurationError: if the config cannot be trained at all.
    """
    config = settings(words)
    words = [*words, *shorter(config)]
    whole = short_run(folder / "whole", words, ITERATIONS)
    if whole.report is not None and ends_early(config, whole.report):
        words = [*words, f"--data.total_env_steps={UNREACHABLE_STEPS}"]
        whole = short_run(folder / "longer", words, ITERATIONS)
    if whole.report is None:
        raise ConfigurationError(f"The config cannot be trained: {whole.error.removeprefix('error: ')}")
    agent, data = load(whole.checkpoint, trusted()), load_data(whole.checkpoint, trusted())
    if "contract" in checks:
        yield contract(data)
    if "determinism" in checks:
        yield determinism(data)
    if "repeat" in checks:
        yield repetition(whole, short_run(folder / "again", words, ITERATIONS), ITERATIONS)
    if "resume" in checks:
        yield resumption(whole, resumed(words, folder), ITERATIONS // 2)
    if "compile" in checks:
        backend = "inductor" if torch.cuda.is_available() and not on_cpu(words) else "aot_eager"
        compile_ = {"class_path": "callbacks.Compile", "init_args": {"mode": "default", "backend": backend}}
        yield compiled(whole, short_run(folder / "compiled", words, ITERATIONS, appended(compile_)), backend)
    if "ranks" in checks:
        two = ("--trainer.strategy=ddp", "--trainer.devices=2")
        yield ranks(whole, short_run(folder / "ranks", words, ITERATIONS, *two))
    if "export" in checks:
        yield exported(agent, data, folder)


def resumed(words: Sequence[str], folder: Path) -> Outcome:
    """Train half of the iterations, then resume from the checkpoint for the others."""
    half = short_run(folder / "half", words, ITERATIONS // 2)
    if half.report is None:
        return half
    return short_run(folder / "resumed", words, ITERATIONS, f"--ckpt_path={half.checkpoint}")


def shorter(config: dict[str, Any]) -> list[str]:
    """Return overrides with which a few iterations of a config learn, and evaluate few episodes."""
    data = config["data"].get("init_args") or {}
    small: dict[str, Any] = {"eval_episodes": 2}
    if "learning_starts" in data:
        steps = data.get("num_envs", 1) * (data.get("train_freq") or 1)
        small["learning_starts"] = max(1, min(data["learning_starts"] or steps, 2 * steps))
    return [f"--data.{name}={value}" for name, value in small.items() if name in data]


def ends_early(config: dict[str, Any], report: dict[str, Any]) -> bool:
    """Return whether a config's `total_env_steps` may end its iterations, or those of two ranks, before the checks."""
    total = (config["data"].get("init_args") or {}).get("total_env_steps")
    return total is not None and total < 2 * report["env_steps"]


def appended(callback: dict[str, Any]) -> str:
    """Return the word that appends a callback to those of a config."""
    return f"--trainer.callbacks+={json.dumps(callback)}"


def on_cpu(words: Sequence[str]) -> bool:
    """Return whether the command line leaves the runs on the CPU, as they are by default."""
    return not any(word.startswith("--trainer.accelerator") and not word.endswith("cpu") for word in words)
