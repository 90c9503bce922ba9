"""Train the seeds of a setting together, as the members of a population of PPO."""

import itertools
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import yaml

from app.class_paths import POPULATION, canonical_path
from app.compare.runs import REFUSED, Entry, finished, last_checkpoint, mark_finished, run_fit
from app.runs.attempts import next_attempt
from datamodules.core.files.printable import printable_line

SINGLE = "modules.PPO"

REFUSALS = ("A population cannot be trained", POPULATION.rpartition(".")[2])
"""What messages of `fit` hold that refuse a population, and not the settings themselves."""

CONFIG = "config.yaml"
"""File of a run's settings in its folder."""


def train_populations(found: Sequence[Entry], when: str, seed_keys: Sequence[str], environ: dict[str, str]) -> str:
    """Train the missing seeds of every setting of PPO in one program; print why a setting cannot be, each reason once.

    Seeds that have a checkpoint to resume from are left out.

    Args:
        when: on | auto: only runs on a GPU.
        seed_keys: settings that get the run's seed; with one of them seeds differ in more than their random numbers.

    Returns: the error message of a run that failed, after which no more are trained; empty if none did.

    Raises:
        SignalExit: if a stop signal arrived.
    """
    told: set[str] = set()
    for setting, group in itertools.groupby(found, key=lambda entry: entry.setting):
        due = [entry for entry in group if finished(entry) is None and last_checkpoint(entry) is None]
        if len(due) < 2 or (when == "auto" and not runs_on_gpu(due[0].words)):
            continue
        if not (reason := why_separate(due[0].words, seed_keys)):
            reason, failure = train_population(setting, due, environ)
            if failure:
                return failure
        if reason and reason not in told:
            print(printable_line(f"{setting}: one program for each seed. {reason}"), flush=True)
        told.add(reason)
    return ""


def why_separate(words: Sequence[str], seed_keys: Sequence[str]) -> str:
    """Return a sentence that says why the seeds of a setting cannot be in one program; empty if they may be."""
    if seed_keys:
        return f"With --seed-key {seed_keys[0]} they differ in more than their random numbers."
    algorithm = canonical_path(setting_of(words, "model.class_path"))
    return f"Only {SINGLE} trains several seeds in one, not {algorithm}." if algorithm not in ("", SINGLE) else ""


def train_population(setting: str, due: Sequence[Entry], environ: dict[str, str]) -> tuple[str, str]:
    """Train seeds of a setting in one program; return why it cannot, and the error message if it fails."""
    run = next_attempt(due[0].folder.with_name("population"))
    seeds = [entry.seed for entry in due]
    words = [*due[0].words, f"--seed_everything={seeds[0]}"]
    words += [f"--model.class_path={POPULATION}", f"--model.init_args.seeds={seeds}"]
    print(printable_line(f"{setting}: {len(seeds)} seeds in one program, in {run}"), flush=True)
    code, said, log = run_fit(run, words, environ)
    if code == REFUSED and any(sign in said for sign in REFUSALS):
        return said, ""
    if code == REFUSED:
        return "", f"{setting}: {said}"
    if code:
        advice = "--population off trains the seeds in separate runs."
        return "", f"{setting}, ended with code {code} and said: {said} (all: {log}). {advice}"
    for entry in due:
        member = (run / f"seed_{entry.seed}").rename(next_attempt(entry.folder))
        (member / CONFIG).write_text(config_of(member, entry.seed, run), encoding="utf-8")
        mark_finished(entry, member)
    return "", ""


def config_of(member: Path, seed: int, run: Path) -> str:
    """Return the config of the run of PPO in the folder `member`, a member of the population in the folder `run`."""
    header, _, text = (run / CONFIG).read_text(encoding="utf-8").partition("\n")
    settings = yaml.safe_load(text) | {"seed_everything": seed}
    settings["model"]["class_path"] = SINGLE
    del settings["model"]["init_args"]["seeds"]
    settings["trainer"]["logger"]["init_args"]["version"] = member.name
    return f"{header}\n{yaml.safe_dump(settings, sort_keys=False)}"


def runs_on_gpu(words: Sequence[str]) -> bool:
    """Return whether arguments of `fit` train on a GPU of this machine."""
    return setting_of(words, "trainer.accelerator") in ("", "auto", "gpu", "cuda") and torch.cuda.is_available()


def setting_of(words: Sequence[str], key: str) -> str:
    """Return the value of a setting that arguments of `fit` choose, the first being `--config FILE`; empty if none."""
    given: list[tuple[list[str], str | bytes]] = [([], Path(words[1]).read_bytes())]
    given += [(name[2:].split("."), value) for name, _, value in (word.partition("=") for word in words[2:])]
    chosen, parts = "", key.split(".")
    for above, text in given:
        if above == parts[: len(above)]:
            with suppress(yaml.YAMLError, ValueError):  # `fit` says what is wrong
                chosen = part_of(yaml.safe_load(text), parts[len(above) :]) or chosen
    return chosen


def part_of(value: Any, parts: Sequence[str]) -> str:
    """Return a part of a parsed setting as text, empty if it has no such part; a class may be its path alone."""
    for part in parts:
        if part == "class_path" and isinstance(value, str):
            break
        value = value.get(part) if isinstance(value, dict) else None
    return "" if value is None else str(value)
