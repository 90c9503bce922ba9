import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from datamodules.core.errors import ConfigurationError

SETTINGS = """
trainer: {accelerator: cpu, log_every_n_steps: 1}
model:
  class_path: modules.DQN
  init_args:
    network: {class_path: modules.networks.MLP, init_args: {hidden: [256, 256, 128], activation: relu}}
    double_q: false
    epsilon_end: 0.01
    epsilon_decay_steps: 1000
data:
  class_path: datamodules.ReplayDataModule
  init_args:
    env: Snake-v0
    env_kwargs: {dim: 6, distance_to_border: 2, observation: grid, rewards: classic, starvation: board}
    num_envs: 4
    train_freq: 4
    batch_size: 32
    replay_ratio: 8
    learning_starts: 64
    total_env_steps: 2000
    eval_episodes: 4
"""


@pytest.fixture
def old(tmp_path: Path):
    """An agent that has learned a little, and its checkpoint."""
    from agent import DQNAgent

    agent, random = DQNAgent(36, 4, device="cpu"), np.random.default_rng(0)
    for _ in range(64):
        agent.remember(random.random(36), int(random.integers(4)), 1.0, random.random(36), False)
    for _ in range(30):
        agent.replay()
    agent.save(tmp_path / "old.pth")
    return agent


def test_an_old_checkpoint_goes_on_as_ours(old, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from import_checkpoint import main

    from app.cli.main import main as program

    monkeypatch.chdir(tmp_path)
    Path("classic.yaml").write_text(SETTINGS)
    monkeypatch.setattr(sys, "argv", ["import_checkpoint.py"])
    main(["old.pth", "snake.ckpt", "--config", "classic.yaml"])
    found = torch.load("snake.ckpt", weights_only=True)
    ours = [value for name, value in found["state_dict"].items() if name.startswith("online.")]
    assert all(torch.equal(one, other) for one, other in zip(ours, old.parameters, strict=True))
    assert found["counters"]["updates"] == 30
    assert found["counters"]["env_steps"] == pytest.approx(1000 * (1 - old.epsilon) / 0.99, abs=17)
    moments = found["optimizer_states"][0]["state"][0]
    states = torch.load("old.pth", weights_only=True)["optimizer_state_dict"]["state"]
    first, last = (states[layer]["exp_avg_sq"].flatten() for layer in (0, 7))
    assert torch.equal(moments["exp_avg_sq"][: first.numel()], first)
    assert torch.equal(moments["exp_avg_sq"][-16:-12], last) and moments["step"] == 30
    for verb in ("fit", "test"):
        monkeypatch.setattr(sys, "argv", ["app", verb, "--config", "classic.yaml", "--ckpt_path", "snake.ckpt"])
        program()
    assert json.loads(Path("metrics.json").read_text())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["old.pth"], "Usage: python import_checkpoint.py"),
        (["none.pth", "snake.ckpt", "--config", "classic.yaml"], "There is no checkpoint none.pth"),
        (["old.pth", "snake.ckpt", "--config", "ppo_fast.yaml"], "give a config of modules.DQN"),
        (["old.pth", "snake.ckpt", "--config", "classic.yaml", "--data.env_kwargs.dim", "7"], "old state size"),
    ],
)
def test_what_cannot_be_taken_over_is_one_sentence(
    old, arguments, sentence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    from import_checkpoint import main

    monkeypatch.chdir(tmp_path)
    Path("classic.yaml").write_text(SETTINGS)
    monkeypatch.setattr(sys, "argv", ["import_checkpoint.py"])
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2 and sentence in capsys.readouterr().err
    assert not Path("snake.ckpt").exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("text", "is damaged, or not a file of tensors"),
        ("list", "lacks model_state_dict"),
        ({"model_state_dict": [1]}, "another model_state_dict"),
        ({"target_model_state_dict": {"weight": 1}}, "another target_model_state_dict"),
        ({"optimizer_state_dict": {"state": {}}}, "another optimizer_state_dict"),
        ({"optimizer_state_dict": {"state": {0: {"step": 1}}, "param_groups": [{}]}}, "another optimizer_state_dict"),
        ({"epsilon": "high"}, "another epsilon"),
        ({"step_count": -1}, "another step_count"),
    ],
)
def test_a_damaged_checkpoint_is_one_sentence(old, change, sentence, tmp_path: Path):
    from checkpoint import read_checkpoint

    path = tmp_path / "old.pth"
    if change == "text":
        path.write_text("epsilon: 0.1\n")
    else:
        torch.save([1, 2] if change == "list" else {**torch.load(path), **change}, path)

    with pytest.raises(ConfigurationError, match=sentence) as error:
        read_checkpoint(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)
