"""Classes are given by their short names, and saved by one path."""

from pathlib import Path

import yaml

from tests.app.conftest import Run

NAMES = """
model:
  class_path: PPO
  init_args:
    network: {class_path: GRU, init_args: {hidden: 9}}
    share_torso: true
data:
  class_path: datamodules.rollout.RolloutDataModule
  init_args: {env: CartPole-v1}
trainer:
  callbacks: [{class_path: GPUMonitor}]
"""


def printed(run: Run, *words: str) -> dict:
    outcome = run("fit", *words, "--print_config")
    assert outcome.code == 0, outcome.err
    return yaml.safe_load(outcome.out)


def test_short_names_in_a_file_are_enough(run: Run, folder: Path) -> None:
    (folder / "names.yaml").write_text(NAMES)

    config = printed(run, "--config", "names.yaml")

    assert config["model"]["class_path"] == "modules.PPO"
    assert config["model"]["init_args"]["network"]["class_path"] == "modules.networks.GRU"
    assert config["model"]["init_args"]["network"]["init_args"]["hidden"] == 9
    assert config["data"]["class_path"] == "datamodules.RolloutDataModule"
    assert [each["class_path"] for each in config["trainer"]["callbacks"]] == ["callbacks.GPUMonitor"]


def test_short_names_on_the_command_line_are_enough(run: Run) -> None:
    data = ("--data", "RolloutDataModule", "--data.env", "CartPole-v1")
    network = ("--model.network", "LSTM", "--model.network.hidden", "7", "--model.share_torso", "true")

    config = printed(run, "--model", "PPO", *network, *data, "--trainer.callbacks+", "GPUMonitor")

    assert config["model"]["class_path"] == "modules.PPO"
    assert config["model"]["init_args"]["network"]["class_path"] == "modules.networks.LSTM"
    assert config["model"]["init_args"]["network"]["init_args"]["hidden"] == 7
    assert config["data"]["class_path"] == "datamodules.RolloutDataModule"
    assert config["trainer"]["callbacks"][-1]["class_path"] == "callbacks.GPUMonitor"


def test_parts_in_lists_and_inside_parts_are_given_by_short_names(run: Run) -> None:
    gains = "[InformationGain, {class_path: OutsideBox, init_args: {low: [1], high: [2]}}]"
    options = ("--model.exploration.planner", "ICEM", "--model.exploration.acquisitions", gains)

    exploration = printed(run, "--config", "dynamics_pendulum.yaml", *options)["model"]["init_args"]["exploration"]

    assert exploration["init_args"]["planner"]["class_path"] == "modules.exploration.ICEM"
    assert [each["class_path"] for each in exploration["init_args"]["acquisitions"]] == [
        "modules.exploration.InformationGain",
        "modules.exploration.OutsideBox",
    ]


def test_a_class_is_the_same_by_any_of_its_paths(run: Run) -> None:
    short = printed(run, "--config", "ppo_cartpole.yaml")

    assert printed(run, "--config", "ppo_cartpole.yaml", "--model", "modules.ppo.ppo.PPO") == short
    assert printed(run, "--config", "ppo_cartpole.yaml", "--model.class_path", "PPO") == short
    network = ("--model.network.class_path", "modules.networks.mlp.MLP")
    assert printed(run, "--config", "ppo_cartpole.yaml", *network) == short


def test_checkpoint_and_saved_settings_hold_the_short_path(run: Run, folder: Path) -> None:
    import torch

    run_once = ("--data.total_env_steps", "256", "--data.eval_episodes", "1", "--trainer.accelerator", "cpu")

    outcome = run("fit", "--config", "ppo_cartpole.yaml", "--model", "modules.ppo.ppo.PPO", *run_once)

    assert outcome.code == 0, outcome.err
    (home,) = folder.glob("runs/ppo_cartpole/version_0")
    checkpoint = torch.load(home / "checkpoints" / "last.ckpt", weights_only=True)
    assert yaml.safe_load((home / "config.yaml").read_text())["model"]["class_path"] == "modules.PPO"
    assert checkpoint["hyper_parameters"]["_class_path"] == "modules.PPO"
    last = ("--ckpt_path", "last", *run_once)
    assert run("test", "--config", "ppo_cartpole.yaml", "--model", "modules.ppo.ppo.PPO", *last).code == 0


def test_wrappers_are_given_by_the_names_of_gymnasium_and_of_this_project(run: Run) -> None:
    listed = "[{class_path: TimeLimit, init_args: {max_episode_steps: 9}}, FlattenObservation]"

    data = printed(
        run, "--config", "ppo_cartpole.yaml", "--data.wrappers", listed, "--data.train_wrappers", "[EpisodicLife]"
    )["data"]["init_args"]

    assert data["wrappers"] == [
        {"class_path": "gymnasium.wrappers.TimeLimit", "init_args": {"max_episode_steps": 9}},
        {"class_path": "gymnasium.wrappers.FlattenObservation"},
    ]
    assert data["train_wrappers"] == [{"class_path": "datamodules.wrappers.EpisodicLife"}]


def test_a_wrapper_with_a_wrong_name_is_given_the_right_one(run: Run) -> None:
    outcome = run("fit", "--config", "ppo_cartpole.yaml", "--data.wrappers", "[ResizeObservations]")
    assert outcome.code == 2 and "did you mean `ResizeObservation`?" in outcome.err


def test_arrays_are_given_as_lists_and_saved_as_lists(run: Run) -> None:
    listed = "[{class_path: RescaleAction, init_args: {min_action: [-1.0], max_action: [1.0]}}]"

    data = printed(run, "--config", "sac_pendulum.yaml", "--data.wrappers", listed)["data"]["init_args"]

    assert data["wrappers"][0]["init_args"] == {"min_action": [-1.0], "max_action": [1.0]}
