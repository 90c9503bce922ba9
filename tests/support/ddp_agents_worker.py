"""A small run of several agents on two CPU ranks: agents see their id, and a random policy plays one of them."""

import json
from pathlib import Path
from typing import Any

import lightning

from datamodules.rollout import RolloutDataModule
from modules.opponents.uniform_policy import UniformPolicy
from tests.support.small_runs import small_ppo, trainer


def agents_data(**changes: Any) -> RolloutDataModule:
    """Four environments of three agents, of which one does not learn; rollouts of 4 steps, ten iterations."""
    small: dict[str, Any] = {"env": "tests.support.parallel_env.RelayTensors", "num_envs": 4, "rollout_length": 4}
    small |= {"append_obs": ["agent_id", "last_action"], "policy_group": [0, 1, 0], "opponents": [UniformPolicy]}
    return RolloutDataModule(**{**small, "total_env_steps": 160, "eval_episodes": 4, **changes})


def train(folder: Path) -> None:
    """Train; rank 0 writes the results into FOLDER/result.json."""
    lightning.seed_everything(1, verbose=False)
    data = agents_data(total_env_steps=320)
    model = small_ppo(data)
    run = trainer(folder, strategy="ddp", devices=2)
    run.fit(model, datamodule=data)
    if run.is_global_zero:
        counts = {"env_steps": model.env_steps, "agent_steps": int(model.agent_steps)}
        (folder / "result.json").write_text(json.dumps(counts), encoding="utf-8")
