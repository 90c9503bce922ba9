"""The grid world: an agent collects more hearts than a scripted forager and five times those of random play."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli.config_files import configs_folder
from datamodules.collect.evaluation import EvaluationDataset
from datamodules.core.protocols import Policy
from datamodules.core.types import SpaceSpec
from datamodules.envs.gridworld.forager import Forager
from datamodules.vector.make_env import make_vector_env
from modules.opponents.uniform_policy import UniformPolicy
from tests.learning.test_ppo_learning import score

pytestmark = pytest.mark.slow

CONFIG = "ppo_gridworld.yaml"
OTHER_MAPS = 1
"""Seed of maps that training does not see."""


def baseline(make: Callable[[SpaceSpec], Policy]) -> float:
    """Hearts per agent of a policy in the world of the config, on other maps, mean over 100 episodes."""
    text = (configs_folder() / CONFIG).read_text(encoding="utf-8")
    env_kwargs: dict[str, Any] = yaml.safe_load(text)["data"]["init_args"]["env_kwargs"]
    envs = make_vector_env("GridWorld-v0", 100, env_kwargs=env_kwargs | {"map_seed": OTHER_MAPS})
    episodes = next(iter(EvaluationDataset(envs, make(envs.spaces), 100, seed=0, greedy=False)))
    return float(episodes.info["hearts"].mean())


@pytest.mark.timeout(1200)
def test_an_agent_beats_the_forager_and_random_play(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random, forager = baseline(UniformPolicy), baseline(Forager)
    other = f"--data.eval_env_kwargs={{map_seed: {OTHER_MAPS}}}"
    agent = score(tmp_path, CONFIG, 1, other, of="hearts_mean")
    with capsys.disabled():
        print(f"hearts per agent: random {random:.3f}, forager {forager:.3f}, agent {agent:.3f}")
    assert agent > forager > random
    assert agent > 5 * random
