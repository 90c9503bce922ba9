"""Train the seeds of a setting together, as the members of a population of PPO."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import yaml

from app.class_paths import POPULATION, canonical_path
from app.cli.error_messages import exit_with_error
from app.compare.runs import REFUSED, Entry, finished, mark_finished, next_attempt, run_fit
from datamodules.core.files.printable import printable_line

SINGLE = "modules.PPO"

CONFIG = "config.yaml"
"""File of a run's settings in its folder."""


def train_populations(found: Sequence[Entry], seed_keys: Sequence[str], environ: dict[str, str]) -> None:
    """Train the missing seeds of every setting of PPO in one program, unless it refuses them, with its reason.

    Args:
        seed_keys: settings that get the run's seed; with one of them seeds differ in more than their random numbers.

    Raises:
        SystemExit: if a run fails.
    """
    for setting, group in itertools.groupby(found, key=lambda entry: entry.setting):
        due = [entry for entry in group if finished(entry) is None]
        if len(due) < 2 or seed_keys or model_path(due[0].words) != SINGLE:
            continue
        run = next_attempt(due[0].folder.with_name("population"))
        seeds = [entry.seed for entry in due]
        words = [*due[0].words, f"--seed_everything={seeds[0]}"]
        words += [f"--model.class_path={POPULATION}", f"--model.init_args.seeds={seeds}"]
        print(printable_line(f"{setting}: {len(seeds)} seeds in one program, in {run}"), flush=True)
        code, said, log = run_fit(run, words, environ)
        if code == REFUSED:
            print(printable_line(f"{setting}: one program for each seed. {said}"), flush=True)
        elif code:
            exit_with_error(
                f"{setting}, ended with code {code} and said: {said} (all: {log}). --population off trains the seeds in"
                " separate runs."
            )
        else:
            for entry in due:
                member = (run / f"seed_{entry.seed}").rename(next_attempt(entry.folder))
                (member / CONFIG).write_text(config_of(member, entry.seed, run), encoding="utf-8")
                mark_finished(entry, member)


def config_of(member: Path, seed: int, run: Path) -> str:
    """Return the config of the run of PPO in the folder `member`, a member of the population in the folder `run`."""
    header, _, text = (run / CONFIG).read_text(encoding="utf-8").partition("\n")
    settings = yaml.safe_load(text) | {"seed_everything": seed}
    settings["model"]["class_path"] = SINGLE
    del settings["model"]["init_args"]["seeds"]
    settings["trainer"]["logger"]["init_args"]["version"] = member.name
    return f"{header}\n{yaml.safe_dump(settings, sort_keys=False)}"


def model_path(words: Sequence[str]) -> str:
    """Return the class path of the algorithm that arguments of `fit` choose, the first being `--config FILE`."""
    try:
        model = yaml.safe_load(Path(words[1]).read_text(encoding="utf-8"))["model"]
        chosen = str(model if isinstance(model, str) else model["class_path"])
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError):
        chosen = ""  # `fit` says what is wrong
    for word in words[2:]:
        key, _, value = word.partition("=")
        chosen = value if key in ("--model", "--model.class_path") else chosen
    return canonical_path(chosen)
