"""Options learn as well as a flat policy, and all of them are used."""

import math
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import lightning
import pytest
import yaml
from lightning.pytorch import Callback

from app.__main__ import main
from app.cli.config_files import configs_folder
from app.monitor.curves import Curves
from callbacks.options.collapse_alarm import OptionCollapseMonitor
from datamodules.replay import ReplayDataModule
from modules.networks.heads.twin_critic import TwinMLP
from modules.networks.mlp import MLP
from modules.sac_options.controller import OptionController
from modules.sac_options.sac_options import SACOptions
from tests.docs.pages import configs
from tests.support.small_runs import trainer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

RANDOM = -1208.0
FAST = 30.0
MOVES_AT = 600
"""Iterations after which the goal of the four rooms moves."""

RESOLUTION = 100
"""Iterations between two looks at the lengths of episodes."""


def made(what: type, config: dict[str, Any]) -> partial[Any]:
    """What makes a network of the config's settings."""
    settings = config["init_args"]
    return partial(what, **settings | {"hidden": tuple(settings["hidden"])})


def script_of(config: dict[str, Any]) -> Any:
    """The hand-written option of the config's class and settings."""
    package, _, name = config["class_path"].rpartition(".")
    return getattr(import_module(package), name)(**config["init_args"])


def model_of(config: dict[str, Any], data: ReplayDataModule, options: int) -> SACOptions:
    """The config's model with another number of options."""
    settings = config["model"]["init_args"] | {"num_options": options}
    if scripts := settings.pop("scripted_options", None):
        given = {"scripted_options": [script_of(each) for each in scripts]}
        settings |= given if options == len(scripts) else {"warmup": "actions"}
    control = settings["controller"]["init_args"]
    control = control | {"network": made(MLP, control["network"])}
    networks = {"network": made(MLP, settings["network"]), "critic": made(TwinMLP, settings["critic"])}
    return SACOptions(data.spaces, **settings | networks | {"controller": partial(OptionController, **control)})


def trained(root: Path, name: str, options: int, seed: int, *callbacks: Callback, **changes: Any) -> SACOptions:
    config = yaml.safe_load((configs_folder() / name).read_text(encoding="utf-8"))
    data = ReplayDataModule(**{**config["data"]["init_args"], **changes})
    lightning.seed_everything(seed, verbose=False)
    model = model_of(config, data, options)
    every = config["trainer"]["log_every_n_steps"]
    run = trainer(root, *callbacks, log_every_n_steps=every, val_check_interval=data.iterations)
    run.fit(model, datamodule=data)
    run.validate(model, datamodule=data, verbose=False)
    return model


class Lengths(Callback):
    """Remembers how long episodes were every so many iterations; the goal moves in the middle of the run."""

    def __init__(self, moved_to: int | None = None) -> None:
        self.lengths: list[float] = []
        self.moved_to = moved_to

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        if trainer.global_step % RESOLUTION == 0:
            self.lengths.append(module.last_logged["rollout/length_mean"])
        if self.moved_to is not None and trainer.global_step == MOVES_AT:
            trainer.datamodule.collector.envs.env.move_goal_(self.moved_to)

    def settled(self, begin: int = 0, end: int | None = None) -> float:
        """Iterations from `begin` on until episodes were short, and stayed so until `end`."""
        lengths = self.lengths[begin // RESOLUTION : end and end // RESOLUTION]
        long = [index for index, length in enumerate(lengths) if length >= FAST]
        return math.inf if lengths[-1] >= FAST else float(RESOLUTION) * (max(long, default=-1) + 2)


def test_four_options_learn_pendulum_as_one_does_and_all_are_used(tmp_path: Path):
    alarm = OptionCollapseMonitor()
    one = trained(tmp_path / "one", "sac_options_pendulum.yaml", 1, 1).last_logged["eval/return_mean"]
    latest = trained(tmp_path / "four", "sac_options_pendulum.yaml", 4, 1, alarm).last_logged

    assert latest["eval/return_mean"] - RANDOM >= 0.95 * (one - RANDOM)
    assert latest["option/usage_min"] > 0.1 and latest["option/length_mean"] >= 2
    assert latest["option/mutual_information"] > 0.05 * math.log(4) and not alarm.alarms


def test_four_options_find_the_goal_of_the_four_rooms_and_find_it_again_about_as_fast_as_one(tmp_path: Path):
    seen = {options: [Lengths(moved_to) for moved_to in (74, 75, 84)] for options in (1, 4)}
    for options, each in seen.items():
        for seed, lengths in enumerate(each):
            changes = {"total_env_steps": 16 * (MOVES_AT + 2400)}
            trained(tmp_path / f"{options}-{seed}", "sac_options_fourrooms.yaml", options, seed, lengths, **changes)

    for begin, end in ((0, MOVES_AT), (MOVES_AT, None)):
        median = {options: sorted(run.settled(begin, end) for run in each)[1] for options, each in seen.items()}
        assert median[1] < math.inf and median[4] <= 1.3 * median[1] + RESOLUTION


def test_given_options_find_a_goal_in_sixteen_rooms_that_one_flat_policy_does_not(tmp_path: Path):
    name, steps = "sac_options_rooms.yaml", {"total_env_steps": 28_000}

    given = trained(tmp_path / "given", name, 8, 3, **steps).last_logged
    flat = trained(tmp_path / "flat", name, 1, 3, **steps).last_logged

    assert given["eval/success_mean"] == 1 and given["eval/length_mean"] < 1.25 * 62.4
    assert flat["eval/success_mean"] < 0.5


def succeeded(monkeypatch: pytest.MonkeyPatch, name: str, *words: str) -> list[float]:
    """Return the success of every evaluation of a run of the program in the working directory."""
    folder = Path("runs") / name
    monkeypatch.setattr(
        sys, "argv", ["app", "fit", *words, "--seed_everything=1", f"--trainer.logger.init_args.name={name}"]
    )
    main()
    curves = Curves(folder / "version_0")
    curves.refresh()
    return [value for _, value in curves.by_tag["eval/success_mean"].points]


def test_options_learned_for_one_goal_find_another_that_one_flat_policy_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "transfer.yaml").write_text(configs()["transfer.yaml"])
    flat = ["--model.scripted_options=null", "--model.num_options=1", "--model.warmup=actions"]
    rooms = ["--config=sac_options_rooms.yaml", "--trainer.max_steps=1250"]

    succeeded(monkeypatch, "sac_options_eigen", "--config=sac_options_eigen.yaml", "--data.env_kwargs.goal=60")
    learned = succeeded(monkeypatch, "learned", rooms[0], "--config=transfer.yaml", *rooms[1:])

    assert learned[-1] == 1.0
    assert max(succeeded(monkeypatch, "flat", *rooms, *flat)) < 0.5
