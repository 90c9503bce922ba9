"""Every check finds what it is for, and names what cannot be checked."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from app.agent.agent import Agent
from app.verify.checks import compiled, contract, determinism, exported, ranks, repetition, resumption
from app.verify.main import shorter
from app.verify.short_run import Outcome
from app.verify.weights_report import BY_HAND, hash_of
from datamodules import RolloutDataModule, SequenceDataModule
from modules import PPO, ActiveDynamics, FullyObservedModel
from modules.networks.latent import RBF


class Unseeded(gymnasium.Env):
    """Draws its observations from numpy's global generator."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return np.random.random(2).astype(np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.random.random(2).astype(np.float32), 0.0, False, False, {}


class NewSpaces(Unseeded):
    """Makes its action space anew at every reset, and answers with the actions."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.action_space = gymnasium.spaces.Discrete(2)
        return np.zeros(2, dtype=np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.full(2, action, dtype=np.float32), 0.0, False, False, {}


def outcome(folder: Path, weight: float = 1.0, envs: Any = None, **report: Any) -> Outcome:
    """The outcome of a run that ended with one weight."""
    weights = {"w": torch.tensor([weight])}
    path = folder / f"{weight}{report}" / "checkpoints" / "last.ckpt"
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"state_dict": weights, "Data": {"ranks": [{"envs": envs or {}}]}}, path)
    known = {"weights": [hash_of(weights)], "phases": {"update": "compiled"}, "env_steps": 64, "updates": 8}
    return Outcome(path.parent.parent, known | report, "")


FAILED = Outcome(Path("nowhere"), None, "it broke")


def test_an_environment_that_repeats_holds_and_another_fails() -> None:
    assert determinism(RolloutDataModule("CartPole-v1")).status == "holds"
    assert determinism(RolloutDataModule("Snake-v0")).status == "holds"
    assert determinism(RolloutDataModule("tests.app.verify.test_checks.NewSpaces")).status == "holds"
    unseeded = RolloutDataModule("tests.app.verify.test_checks.Unseeded")

    assert determinism(unseeded).status == "fails" and "self.np_random" in determinism(unseeded).text
    assert contract(unseeded).status == "fails" and contract(RolloutDataModule("CartPole-v1")).status == "holds"


def test_equal_weights_hold_and_others_fail(tmp_path: Path) -> None:
    one, same, other = outcome(tmp_path), outcome(tmp_path), outcome(tmp_path, 2.0)

    assert [repetition(one, each, 8).status for each in (same, other, FAILED)] == ["holds", "fails", "fails"]


def test_a_resume_that_differs_fails_only_if_the_environment_saves_its_state(tmp_path: Path) -> None:
    whole, saving = outcome(tmp_path), outcome(tmp_path / "saving", envs={"state": torch.ones(1)})
    other = outcome(tmp_path, 2.0)

    assert resumption(whole, outcome(tmp_path), 4).status == "holds"
    assert resumption(whole, other, 4).status == "cannot" and resumption(saving, other, 4).status == "fails"
    assert "it broke" in resumption(whole, FAILED, 4).text


@pytest.mark.parametrize(
    ("weight", "mode", "status"),
    [(1.0001, "compiled", "holds"), (1.1, "compiled", "fails"), (1.0, "eager", "fails"), (1.0, BY_HAND, "cannot")],
)
def test_a_compiled_run_is_compared_with_the_eager_one(weight: float, mode: str, status: str, tmp_path: Path) -> None:
    found = compiled(outcome(tmp_path), outcome(tmp_path, weight, phases={"update": mode}), "aot_eager")

    assert found.status == status


def test_two_ranks_must_agree_and_take_twice_the_steps(tmp_path: Path) -> None:
    one = outcome(tmp_path)
    equal = one.report["weights"] * 2 if one.report else []

    assert ranks(one, outcome(tmp_path, weights=equal, env_steps=128)).status == "holds"
    assert ranks(one, outcome(tmp_path, weights=["a", "b"], env_steps=128)).status == "fails"
    assert ranks(one, outcome(tmp_path, weights=equal, env_steps=64)).status == "fails"
    assert ranks(one, FAILED).status == "fails"


def test_a_network_is_exported_and_a_planner_cannot(tmp_path: Path) -> None:
    data, sequences = RolloutDataModule("CartPole-v1"), SequenceDataModule("Duffing-v0")
    planner = ActiveDynamics(sequences.spaces, FullyObservedModel(RBF(low=[-2.0, -2.0], high=[2.0, 2.0], centres=3)))

    assert exported(Agent(PPO(data.spaces)), data, tmp_path).status == "holds"
    assert exported(Agent(planner), sequences, tmp_path).status == "cannot"


def test_a_short_run_learns() -> None:
    replay = {"data": {"init_args": {"num_envs": 4, "train_freq": 8, "learning_starts": 1_000, "eval_episodes": 32}}}

    assert shorter(replay) == ["--data.eval_episodes=2", "--data.learning_starts=64"]
    assert shorter({"data": {"init_args": {"env": "X"}}}) == []
