"""Options learn as well as a flat policy, use all of themselves, and recover when the goal moves."""

import math
from pathlib import Path
from typing import Any

import lightning
import pytest
import yaml
from lightning.pytorch import Callback

from app.__main__ import configs_folder
from callbacks.options import OptionAlarm
from datamodules.replay import ReplayData
from modules.networks.mlp import MLP
from modules.networks.twin import TwinMLP
from modules.options.controller import Controller
from modules.sac_options import SACOptions
from tests.training import trainer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

RANDOM = -1208.0
MOVED_AT, GOAL, FAST = 1500, 74, 30.0


def model_of(config: dict[str, Any], data: ReplayData, options: int) -> SACOptions:
    """The config's model with another number of options."""
    settings = config["model"]["init_args"] | {"options": options}
    control = settings["controller"]["init_args"]
    hidden = {name: settings[name]["init_args"]["hidden"] for name in ("network", "critic")}
    own = control["network"]["init_args"]["hidden"]
    settings["network"] = lambda shape: MLP(shape, tuple(hidden["network"]), "relu")
    settings["critic"] = lambda *shape: TwinMLP(*shape, hidden=tuple(hidden["critic"]))
    rest = {name: value for name, value in control.items() if name != "network"}
    settings["controller"] = lambda *each: Controller(*each, network=lambda s: MLP(s, tuple(own), "relu"), **rest)
    return SACOptions(data.spaces, **settings)


def trained(root: Path, name: str, options: int, seed: int, *callbacks: Callback, **changes: Any) -> SACOptions:
    config = yaml.safe_load((configs_folder() / name).read_text(encoding="utf-8"))
    data = ReplayData(**{**config["data"]["init_args"], **changes})
    lightning.seed_everything(seed, verbose=False)
    model = model_of(config, data, options)
    every = config["trainer"]["log_every_n_steps"]
    run = trainer(root, *callbacks, log_every_n_steps=every, val_check_interval=data.iterations)
    run.fit(model, datamodule=data)
    run.validate(model, datamodule=data, verbose=False)
    return model


class MoveGoal(Callback):
    """Moves the goal of the four rooms, and remembers how long episodes were after every hundred iterations."""

    def __init__(self) -> None:
        self.lengths: list[float] = []

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        if trainer.global_step == MOVED_AT:
            trainer.datamodule.collector.envs.env.move_goal_(GOAL)
        if trainer.global_step % 100 == 0:
            self.lengths.append(module.latest.get("rollout/length_mean", math.inf))

    def reached(self, start: int) -> float:
        """Iterations after `start` until episodes were short."""
        later = self.lengths[start // 100 + 2 :]  # means look back over a hundred episodes
        return next((100.0 * (i + 2) for i, length in enumerate(later) if length < FAST), math.inf)


def test_four_options_learn_pendulum_as_one_does_and_all_are_used(tmp_path: Path):
    alarm = OptionAlarm()
    one = trained(tmp_path / "one", "sac_options_pendulum.yaml", 1, 1).latest["eval/return_mean"]
    latest = trained(tmp_path / "four", "sac_options_pendulum.yaml", 4, 1, alarm).latest

    assert latest["eval/return_mean"] - RANDOM >= 0.95 * (one - RANDOM)
    assert latest["option/usage_min"] > 0.1 and latest["option/length_mean"] >= 2
    assert latest["option/mutual_information"] > 0.05 * math.log(4) and not alarm.alarms


def test_four_options_recover_in_the_four_rooms_about_as_fast_as_one(tmp_path: Path):
    moves = {options: [MoveGoal() for _ in range(3)] for options in (1, 4)}
    for options, each in moves.items():
        for seed, move in enumerate(each):
            trained(tmp_path / f"{options}-{seed}", "sac_options_fourrooms.yaml", options, seed, move)

    median = {options: sorted(move.reached(MOVED_AT) for move in each)[1] for options, each in moves.items()}

    assert median[4] <= 1.3 * median[1] < math.inf
