"""Runs of a few iterations: what is logged, what a resume repeats, and collapses that are planted to be seen."""

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.loggers import TensorBoardLogger

from callbacks.options.collapse_alarm import OptionCollapseMonitor
from callbacks.options.option_figures import OptionFigures
from callbacks.run_control.checkpoint import RunCheckpoint
from datamodules.replay import ReplayDataModule
from datamodules.trading.datamodule import TradingDataModule
from datamodules.trading.scripted_options import ClosePosition, OpenLong, OpenShort, Scalp, TrendFollow, Wait
from modules.networks.heads.twin_critic import TwinMLP
from modules.networks.mlp import MLP
from modules.sac_options.controller import OptionController
from modules.sac_options.sac_options import SACOptions
from tests.support.small_runs import trainer, weights_hash

TAGS = {
    *(f"option/{name}_{option}" for name in ("usage", "select", "beta") for option in range(3)),
    *(f"option/{name}" for name in ("usage_min", "usage_entropy", "length_mean", "length_p50", "length_p95")),
    *(f"option/{name}" for name in ("term_rate", "switch_rate", "divergence_mean", "mutual_information")),
    *("option/master_entropy", "option/marginal_entropy", "train/alpha_action", "train/alpha_option"),
}


def rooms(**changes: Any) -> ReplayDataModule:
    """Four walkers; two vector steps and one minibatch an iteration."""
    settings: dict[str, Any] = {"env_kwargs": {"time_limit": 20}, "num_envs": 4, "train_freq": 2, "batch_size": 16}
    replay = {"replay_ratio": 2, "capacity": 1000, "learning_starts": 8, "total_env_steps": 240, "eval_episodes": 4}
    return ReplayDataModule("FourRooms-v0", **{**settings, **replay, **changes})


def small(data: ReplayDataModule, num_options: int = 3, **control: Any) -> SACOptions:
    """Nothing changes with the length of the run."""
    nets = {"network": partial(MLP, hidden=(16,)), "critic": partial(TwinMLP, hidden=(16,))}
    constant = {"entropy": 0.2, "entropy_end": 0.2}
    controller = partial(OptionController, network=partial(MLP, hidden=(16,)), **constant, **control)
    return SACOptions(data.spaces, num_options=num_options, controller=controller, **nets)


def fitted(root: Path, *callbacks: Callback, model: SACOptions | None = None, **changes: Any) -> SACOptions:
    lightning.seed_everything(1, verbose=False)
    data = rooms(**changes.pop("data", {}))
    model = small(data) if model is None else model
    ckpt_path = changes.pop("ckpt_path", None)
    trainer(root, *callbacks, **{"log_every_n_steps": 5, **changes}).fit(
        model, datamodule=data, ckpt_path=ckpt_path, weights_only=True
    )
    return model


def trading_data() -> TradingDataModule:
    """Four synthetic markets of 400 bars, thirty iterations."""
    settings = {"synthetic": {"bars": 400}, "env_kwargs": {"embargo": 5, "option_mask": True}, "num_envs": 4}
    replay = {"batch_size": 16, "train_freq": 2, "replay_ratio": 2, "capacity": 1000, "learning_starts": 8}
    return TradingDataModule("REGIMES", total_env_steps=240, **settings, **replay)


def trader(data: TradingDataModule) -> SACOptions:
    """A trader with the six hand-written options."""
    nets = {"network": partial(MLP, hidden=(16,)), "critic": partial(TwinMLP, hidden=(16,))}
    six = [OpenLong(), OpenShort(), ClosePosition(), TrendFollow(), Scalp(), Wait()]
    return SACOptions(
        data.spaces, scripted_options=six, controller=partial(OptionController, network=nets["network"]), **nets
    )


def traded(root: Path, *callbacks: Callback, **changes: Any) -> SACOptions:
    """Train a trader from seed 1, evaluated every fifteen iterations of thirty."""
    lightning.seed_everything(1, verbose=False)
    data = trading_data()
    model = trader(data)
    ckpt_path = changes.pop("ckpt_path", None)
    run = trainer(root, *callbacks, **{"log_every_n_steps": 5, "val_check_interval": 15, **changes})
    run.fit(model, datamodule=data, ckpt_path=ckpt_path, weights_only=True)
    return model


def test_every_number_of_options_is_logged_and_drawn(tmp_path: Path):
    logger = TensorBoardLogger(tmp_path, name="", version="")

    model = fitted(tmp_path, OptionFigures(), logger=logger, val_check_interval=10)

    assert set(model.last_logged) >= TAGS
    assert sum(model.last_logged[f"option/usage_{option}"] for option in range(3)) == pytest.approx(1.0)
    assert len(model.statistics.recent["option"]) == 60
    assert model.updates == 30


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path):
    whole = fitted(tmp_path / "whole")
    fitted(tmp_path / "half", RunCheckpoint(every_n_iterations=15), data={"total_env_steps": 120})
    last = next((tmp_path / "half").rglob("last.ckpt"))

    resumed = fitted(tmp_path / "rest", ckpt_path=last)

    assert weights_hash(resumed) == weights_hash(whole)


def test_a_resumed_trader_is_the_uninterrupted_one(tmp_path: Path):
    whole = traded(tmp_path / "whole")
    traded(tmp_path / "half", RunCheckpoint(), limit_train_batches=17)
    last = next((tmp_path / "half").rglob("last.ckpt"))

    resumed = traded(tmp_path / "rest", ckpt_path=last)

    assert 0 < torch.load(last, weights_only=True)["counters"]["env_steps"] < whole.env_steps == resumed.env_steps
    assert resumed.updates == whole.updates and weights_hash(resumed) == weights_hash(whole)
    assert resumed.last_logged["eval/return_mean"] == whole.last_logged["eval/return_mean"]


def alarmed(
    root: Path, model: SACOptions, *callbacks: Callback, **changes: Any
) -> tuple[list[str], OptionCollapseMonitor]:
    """What was warned of, with everything that learns held still."""
    alarm = OptionCollapseMonitor(patience=2, after=0.0)
    frozen: dict[str, Any] = {"log_every_n_steps": 5, "val_check_interval": 5}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fitted(root, alarm, *callbacks, model=model, **{**frozen, **changes})
    return [str(each.message) for each in said if "collapse" in str(each.message)], alarm


def still(model: SACOptions) -> SACOptions:
    """Nothing learns any more."""
    model.learning_rate = model.critic_learning_rate = 0.0
    return model


def test_options_that_end_after_one_step_are_an_alarm(tmp_path: Path):
    model = still(small(rooms()))
    model.controller.termination_net.head.linear.bias.data.fill_(20.0)

    said, alarm = alarmed(tmp_path, model)

    assert model.last_logged["option/length_mean"] == 1.0
    assert "length" in alarm.alarms and any("collapse (length)" in each for each in said)


def test_three_of_six_options_unused_is_an_alarm(tmp_path: Path):
    model = still(small(rooms(), num_options=6))
    model.controller.master.head.linear.bias.data[:3] = -50.0

    said, alarm = alarmed(tmp_path, model)

    assert [model.last_logged[f"option/usage_{option}"] for option in range(3)] == [0.0, 0.0, 0.0]
    assert "usage" in alarm.alarms and any("collapse (usage)" in each for each in said)
    assert model.last_logged["option/alarms"] >= 1


def test_evaluations_that_return_nothing_are_an_alarm(tmp_path: Path):
    model = still(small(rooms()))
    model.head.linear.weight.data.zero_()
    model.head.linear.bias.data.copy_(torch.tensor([9.0, 0, 0, 0]).repeat(3))

    said, alarm = alarmed(tmp_path, model, data={"env_kwargs": {"time_limit": 20, "slip": 0.0, "goal": 103}})

    assert model.last_logged["eval/return_mean"] == 0.0
    assert "evaluation" in alarm.alarms and any("collapse (evaluation)" in each for each in said)
