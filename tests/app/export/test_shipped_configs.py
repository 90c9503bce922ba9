"""The exported decision of every shipped config is the agent's; planners are refused."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from lightning.pytorch import LightningDataModule, LightningModule, seed_everything
from lightning.pytorch.cli import instantiate_module

from app.class_paths import exported_classes
from app.cli.config_files import configs_folder, shipped_configs
from app.export.comparison import Difference, export_and_compare
from app.export.decision import Decision
from app.export.formats import FORMATS
from datamodules.core.errors import ConfigurationError
from modules.networks.normalization import RunningNormalizer

KINDS = {
    "ppo_cartpole_memory.yaml": "onnx",
    "ppo_pendulum.yaml": "torch-export",
    "ppo_snake.yaml": "onnx",
    "dqn_snake.yaml": "torch-export",
    "sac_cartpole.yaml": "torch-export",
    "sac_options_pendulum.yaml": "onnx",
    "sac_options_spy.yaml": "onnx",
    "sac_options_synthetic.yaml": "torch-export",
}
"""Configs of different networks and actions, with a format; every config and format is compared by the slow tests."""

NEEDED = {
    "lunarlander": "Box2D",
    "pong": "ale_py",
    "halfcheetah": "mujoco",
    "ppo_mujoco": "mujoco",
    "simple_spread": "mpe2",
}
NETWORKS = [name for name in shipped_configs() if not name.startswith("dynamics_")]
PLANNERS = [name for name in shipped_configs() if name.startswith("dynamics_")]


def decision_of(config: str) -> tuple[Any, Decision]:
    """The data and the decision of a config, untrained, with statistics in its normalisers."""
    seed_everything(1)
    settings = yaml.safe_load((configs_folder() / config).read_text(encoding="utf-8"))
    exported_classes()
    arguments = {
        part: settings[part]["init_args"] | {"_class_path": settings[part]["class_path"]} for part in ("data", "model")
    }
    data: Any = instantiate_module(LightningDataModule, arguments["data"])
    module: Any = instantiate_module(LightningModule, arguments["model"] | {"spaces": data.spaces})
    module.modes.eval_()
    for part in module.modules():
        if isinstance(part, RunningNormalizer):
            part.update_(3 * torch.randn(100, *part.mean.shape) + 1)
    return data, Decision(module).eval()


def compared(config: str, kind: str, path: Path, observations: int) -> Difference:
    """Export a config's decision and compare it."""
    data, decision = decision_of(config)
    return export_and_compare(decision.module, data, observations, kind, path / FORMATS[kind]).difference


def require(config: str, kind: str) -> None:
    """Skip a test whose packages are not installed."""
    packages = [package for part, package in NEEDED.items() if part in config]
    packages += ["onnx", "onnxscript", "onnxruntime"] * (kind == "onnx")
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}")


@pytest.mark.parametrize(("config", "kind"), KINDS.items())
def test_an_exported_decision_is_the_agents(config: str, kind: str, tmp_path: Path) -> None:
    require(config, kind)

    found = compared(config, kind, tmp_path, observations=60)

    assert found.holds, found


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("config", NETWORKS)
def test_the_exported_decision_of_every_config_is_the_agents(config: str, kind: str, tmp_path: Path) -> None:
    require(config, kind)

    found = compared(config, kind, tmp_path, observations=1_000)

    assert found.holds and found.observations == 1_000, found


@pytest.mark.parametrize("config", [PLANNERS[0], "dynamics_duffing.yaml"])
def test_planners_are_refused_with_the_reason(config: str) -> None:
    with pytest.raises(ConfigurationError, match="searches for a plan with its learned model at every step"):
        decision_of(config)
