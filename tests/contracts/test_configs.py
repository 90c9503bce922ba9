import re
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightning.pytorch import Callback

import app.cli.main  # noqa: F401  (here, so that Lightning's log handler keeps a stream that outlives one test)
from app.__main__ import main
from app.cli.config_files import SHARED, configs_folder, shipped_configs
from modules.base.trainer_checks import PER_BATCH, acting_hooks

SMALL = {"num_envs": 4, "rollout_length": 16, "train_freq": 16, "total_env_steps": 128}
SMALL |= {
    "eval_episodes": 2,
    "num_minibatches": 2,
    "bptt_length": 8,
    "batch_size": 16,
    "sequence_length": 3,
    "burn_in": 1,
    "replay_ratio": 1,
    "capacity": 400,
    "learning_starts": 16,
}
"""A run of two iterations; what a config does not set is left alone."""
EPISODES = {"eval_max_steps": 64}
"""Added for every environment whose episodes are evaluated."""
SEQUENCES = {"num_envs": 2, "train_freq": 4, "total_env_steps": 16, "sequence_length": 4}
SEQUENCES |= {"num_val_sequences": 2, "val_sequence_length": 25}
"""Two iterations of four steps, each of which is planned."""
VALIDATION = {"SPY": "2014-06-01", "REGIMES": "2122-01-01"}
"""First day of a validation of half a year, which the trading report plays from end to end."""
NEEDED = {
    "LunarLander": ("Box2D", "box2d"),
    "ALE/": ("ale_py", "atari"),
    "HalfCheetah": ("mujoco", "mujoco"),
    "mpe2": ("mpe2", "pettingzoo"),
    "minigrid:": ("minigrid", "minigrid"),
    "MettaGrid": ("mettagrid", "mettagrid"),
    "gymnasium_robotics:": ("gymnasium_robotics", "robotics"),
}
"""The package and the extra that an environment needs."""

GAMMAS = {
    0.9: "ppo_pendulum",
    0.95: "ppo_simple_spread sac_curiosity_fourrooms sac_options_fourrooms sac_options_synthetic sac_pendulum_memory",
    0.97: "dqn_snake",
    0.98: "ppo_cartpole ppo_cartpole_device ppo_cartpole_large ppo_gridworld ppo_mettagrid ppo_tmaze pqn_snake"
    " sac_options_eigen sac_options_horde sac_options_keydoor sac_options_rooms sac_pointmaze_her",
    0.99: " ".join(
        (
            "dqn_acrobot dqn_cartpole dqn_cartpole_memory dqn_lunarlander dqn_pong dqn_snake_classic",
            "ppo_carball ppo_carball_lstm ppo_gridworld_ultra ppo_mettagrid_ultra",
            "ppo_acrobot ppo_cartpole_memory ppo_fast ppo_minatar_breakout ppo_minigrid_doorkey ppo_mujoco",
            "ppo_pong",
            "pqn_minatar_breakout sac_cartpole sac_mujoco sac_options_spy sac_pendulum",
        )
    ),
    0.995: "ppo_snake ppo_snake_6x6",
    0.999: "ppo_lunarlander",
    0.9999: "sac_mountaincar",
}
"""Discounts of the shipped configs, with which their results were measured; the rest have none."""

every_config = pytest.mark.parametrize("name", shipped_configs())

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `python -m app` with the given words in an empty folder; what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")
    monkeypatch.setattr("matplotlib.figure.Figure.draw", lambda *_: None)  # tests/callbacks/figures looks at pictures

    def run_words(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["app", *words])
        main()
        return capsys.readouterr().out

    return run_words


def read(name: str) -> dict[str, Any]:
    return yaml.safe_load((configs_folder() / name).read_text(encoding="utf-8"))


def smaller(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Settings of data and model that make a config's run short."""
    sizes: dict[str, Any] = {
        part: {key: SMALL[key] for key in SMALL if key in config[part]["init_args"]} for part in ("data", "model")
    }
    kind = config["data"]["class_path"]
    if "Sequence" in kind:
        sizes["data"].pop("sequence_length", None)  # stored sequences are long enough for the model as they are
    sizes["data"] |= SEQUENCES if kind.endswith(".SequenceDataModule") else {} if "Sequence" in kind else EPISODES
    if (symbol := config["data"]["init_args"].get("symbol")) is not None:
        sizes["data"]["val_from"] = VALIDATION[symbol]
    return sizes


def words(sizes: dict[str, dict[str, Any]]) -> list[str]:
    """The settings as words of the command line, on the CPU."""
    settings = [f"--{part}.{key}={value}" for part in sizes for key, value in sizes[part].items()]
    return [*settings, "--trainer.accelerator=cpu"]


@every_config
def test_the_first_lines_say_what_how_and_what_to_expect(name: str) -> None:
    what, launch, expect, *_ = (configs_folder() / name).read_text(encoding="utf-8").splitlines()

    assert re.fullmatch(r"# .+\.", what), "say what it is in one sentence"
    assert launch == f"# python -m app fit --config {name}"
    assert re.fullmatch(r"# Expect: .*\d.*", expect), "say what to expect, in numbers"


@every_config
def test_a_config_holds_no_setting_that_all_runs_share(name: str) -> None:
    config, shared = read(name), read(SHARED)["trainer"]

    assert {"trainer", "model", "data"} == set(config)
    assert "logger" not in config["trainer"]
    assert not [key for key, value in config["trainer"].items() if key in shared and value == shared[key]]


@every_config
def test_a_config_discounts_as_its_results_were_measured(name: str) -> None:
    gammas = {f"{config}.yaml": gamma for gamma, configs in GAMMAS.items() for config in configs.split()}

    assert read(name)["model"]["init_args"].get("gamma") == gammas.get(name)


@every_config
def test_a_config_of_several_iterations_a_batch_has_no_callback_that_acts_on_batches(name: str) -> None:
    config = read(name)
    several = config["data"]["init_args"].get("iterations_per_batch", 1) > 1
    trainer = config["trainer"]
    for callback in trainer.get("callbacks") or read(SHARED)["trainer"]["callbacks"] + trainer.get("callbacks+", []):
        module, _, kind = callback["class_path"].rpartition(".")
        hooks = list(acting_hooks(getattr(import_module(module), kind), Callback, PER_BATCH))
        assert not (several and hooks), f"{kind} acts on every batch"


def assert_settings_of(written: Path, asked: dict[str, Any]) -> None:
    """Assert that the settings which a run has written are those of its config, but for what made it short."""
    shown, sizes = yaml.safe_load(written.read_text(encoding="utf-8")), smaller(asked)
    for part in ("data", "model"):
        assert shown[part]["class_path"] == asked[part]["class_path"]
        assert shown[part]["init_args"].items() >= (plain(asked[part]["init_args"]) | sizes[part]).items()


def plain(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that are no classes, whose own defaults the program fills in."""
    return {key: value for key, value in settings.items() if not names_classes(value)}


def names_classes(value: Any) -> bool:
    """Whether a setting is a class, or a list of classes."""
    return (
        any(map(names_classes, value)) if isinstance(value, list) else isinstance(value, dict) and "class_path" in value
    )


@every_config
def test_a_short_run_learns_evaluates_and_saves(name: str, run: Run, tmp_path: Path) -> None:
    config = read(name)
    for env, (package, extra) in NEEDED.items():
        if config["data"]["init_args"]["env"].startswith(env) and find_spec(package) is None:
            with pytest.raises(SystemExit, match=r"^0$"):
                run("fit", "--config", name, "--print_config")
            pytest.skip(f"needs the extra {extra}")

    said = run("fit", "--config", name, *words(smaller(config)))

    assert f"Run runs/{name.removesuffix('.yaml')}/version_0; best checkpoint" in said
    assert_settings_of(tmp_path / "runs" / name.removesuffix(".yaml") / "version_0" / "config.yaml", config)
    assert list(tmp_path.glob("runs/*/version_0/checkpoints/last.ckpt"))
