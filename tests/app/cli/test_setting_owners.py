"""A setting of another class is refused with the class that it belongs to."""

from pathlib import Path

import pytest

from app.class_paths import exported_classes
from app.cli.setting_owners import SYNONYMS, arguments, owners, suggested
from tests.app.conftest import Run

ELSEWHERE = [
    ("dqn_cartpole.yaml", "data.policy_lag", "datamodules.RolloutDataModule"),
    (
        "ppo_cartpole.yaml",
        "data.replay_ratio",
        "datamodules.ReplayDataModule or datamodules.TradingDataModule",
    ),
    (
        "ppo_cartpole.yaml",
        "data.learning_starts",
        "datamodules.ReplayDataModule or datamodules.TradingDataModule",
    ),
    ("dqn_cartpole.yaml", "model.clip_range", "modules.PPO"),
    ("ppo_cartpole.yaml", "model.target_interval", "modules.DQN"),
    ("ppo_cartpole.yaml", "model.network.channels", "modules.networks.CNN"),
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
        "datamodules.OfflineReplayDataModule",
        "datamodules.ReplayDataModule",
        "datamodules.RolloutDataModule",
        "datamodules.TradingDataModule",
    ]


def test_a_class_takes_what_it_hands_on_to_its_base() -> None:
    assert "modules.SACOptions" in owners("model.init_args.tau")


MEANT = [
    ("num_envs", "--data.num_envs"),
    ("model.num_envs", "--data.num_envs"),
    ("model.lr", "--model.learning_rate"),
    ("lr", "--model.learning_rate"),
    ("gama", "--model.gamma"),
    ("n_steps", "--data.rollout_length"),
    ("modl.update_epochs", "--model.update_epochs"),
    ("max_epochs", "--trainer.max_epochs"),
    ("seed", "--seed_everything"),
    ("model.lam", "--model.gae_lambda"),
    ("data.horizon", "--data.rollout_length"),
]


@pytest.mark.parametrize(("key", "meant"), MEANT)
def test_a_setting_in_the_wrong_place_or_of_another_library_leads_to_ours(run: Run, key: str, meant: str) -> None:
    outcome = run("fit", "--config", "ppo_cartpole.yaml", f"--{key}", "1")

    assert (outcome.code, outcome.err) == (
        2,
        f"`{key}` (command line) is not a setting: did you mean `{meant}`?\n",
    )


def test_a_setting_of_another_library_in_a_file_is_named_as_files_write_it(run: Run, folder: Path) -> None:
    (folder / "bad.yaml").write_text("model: {class_path: modules.PPO, init_args: {lr: 1}}\n")

    outcome = run("fit", "--config", "bad.yaml")

    assert outcome.err.startswith("`model.init_args.lr` (bad.yaml, line 1) is not a setting: ")
    assert outcome.err.endswith("did you mean `model.learning_rate`?\n")


def test_only_the_configured_class_is_searched() -> None:
    assert suggested("update_epoch", {"model": "PPO"}, ()) == "model.update_epochs"
    assert suggested("update_epoch", {"model": "modules.dqn.dqn.DQN"}, ()) is None
    assert suggested("update_epoch", {}, ()) == "model.update_epochs"


def test_synonyms_name_settings_that_exist() -> None:
    known = {name for kind in exported_classes() for name in arguments(kind)} | {"seed_everything"}

    assert {name for names in SYNONYMS.values() for name in names.split()} <= known


def test_settings_that_a_class_given_later_does_not_have_are_named(run: Run, folder: Path) -> None:
    (folder / "mine.yaml").write_text(
        "model: {class_path: PPO, init_args: {clip_range: 0.1, gamma: 0.9,\n"
        "  network: {class_path: MLP, init_args: {hidden: [8], layer_norm: true}}}}\n"
        "data: {class_path: RolloutDataModule, init_args: {env: CartPole-v1, policy_lag: 0}}\n"
    )
    words = ("fit", "--config", "mine.yaml", "--model", "PQN", "--model.network", "LSTM", "--model.network.hidden", "8")

    with pytest.warns(UserWarning, match="are dropped") as caught:
        run(*words, "--trainer.max_steps", "0", "--trainer.logger", "false")

    assert [str(each.message) for each in caught if "dropped" in str(each.message)] == [
        "`model` is modules.PQN: of its settings in mine.yaml, clip_range are dropped.",
        "`model.network` is modules.networks.LSTM: of its settings in mine.yaml, layer_norm are dropped.",
    ]
