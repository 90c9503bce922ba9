"""A setting of another class is refused with the class that it belongs to."""

import pytest

from app.cli.setting_owners import owners
from tests.app.conftest import Run

ELSEWHERE = [
    ("dqn_cartpole.yaml", "data.staleness", "datamodules.rollout.RolloutData"),
    (
        "ppo_cartpole.yaml",
        "data.replay_ratio",
        "datamodules.replay.ReplayData or datamodules.trading.datamodule.TradingData",
    ),
    (
        "ppo_cartpole.yaml",
        "data.learning_starts",
        "datamodules.replay.ReplayData or datamodules.trading.datamodule.TradingData",
    ),
    ("dqn_cartpole.yaml", "model.clip", "modules.ppo.ppo.PPO"),
    ("ppo_cartpole.yaml", "model.target_interval", "modules.dqn.dqn.DQN"),
    ("ppo_cartpole.yaml", "model.network.channels", "modules.networks.cnn.CNN"),
]


@pytest.mark.parametrize(("config", "key", "where"), ELSEWHERE)
def test_a_setting_of_another_class_names_the_class(run: Run, config: str, key: str, where: str) -> None:
    outcome = run("fit", "--config", config, f"--{key}", "1")

    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert outcome.err.startswith(f"`{key}` (command line) belongs to ")
    assert where in outcome.err


def test_a_setting_of_no_class_belongs_to_none() -> None:
    assert not owners("data.init_args.policy")
    assert not owners("model.optimizer.horizon")


def test_a_base_class_owns_nothing_by_itself() -> None:
    assert owners("data.eval_greedy") == [
        "datamodules.replay.ReplayData",
        "datamodules.rollout.RolloutData",
        "datamodules.trading.datamodule.TradingData",
    ]


def test_a_class_takes_what_it_hands_on_to_its_base() -> None:
    assert "modules.sac_options.sac_options.SACOptions" in owners("model.init_args.tau")
