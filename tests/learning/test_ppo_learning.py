"""PPO's shipped configs reach their references, through the real command line, judged by the last weights."""

import json
from pathlib import Path

import pytest

from tests.support.training_runs import fit_and_test

pytestmark = pytest.mark.slow

SEEDS = (1, 2, 3)


def score(folder: Path, config: str, seed: int, *changes: str, of: str) -> float:
    """Trains a config from a seed; a value's mean over 100 greedy episodes of the last weights, not of the best."""
    run, _ = fit_and_test(folder, "--config", config, "--seed_everything", str(seed), *changes)
    return float(json.loads((run / "metrics.json").read_text())[of])


def must_reach(folder: Path, config: str, bar: float, *changes: str, needed: int = 2, of: str = "return_mean") -> None:
    """Trains from one seed after the other, until `needed` of them have reached the bar; fails if they never do."""
    scores: list[float] = []
    for seed in SEEDS:
        scores.append(score(folder / str(seed), config, seed, *changes, of=of))
        if sum(each >= bar for each in scores) == needed:
            return
    pytest.fail(f"{config} scored {scores}: fewer than {needed} of them reach {bar}.")


def test_cartpole_with_the_settings_of_the_zoo(tmp_path: Path) -> None:
    must_reach(tmp_path, "ppo_cartpole.yaml", 475)


def test_cartpole_of_envpool_s(tmp_path: Path) -> None:
    pytest.importorskip("envpool", reason="needs the extra envpool")

    must_reach(tmp_path, "ppo_cartpole.yaml", 475, "--data.backend=envpool")


def test_cartpole_from_a_policy_that_is_one_iteration_old(tmp_path: Path) -> None:
    must_reach(tmp_path, "ppo_cartpole.yaml", 475, "--data.policy_lag=1")


def test_cartpole_in_a_second(tmp_path: Path) -> None:
    must_reach(tmp_path, "ppo_cartpole_large.yaml", 475, needed=3)


def test_strided_minibatches_learn_as_shuffled_ones_do(tmp_path: Path) -> None:
    must_reach(tmp_path, "ppo_cartpole_large.yaml", 475, "--model.minibatch_order=strided", needed=3)


def test_a_time_limit_of_50_teaches_to_balance_beyond_200(tmp_path: Path) -> None:
    limits = ("--data.env_kwargs={max_episode_steps: 50}", "--data.eval_env_kwargs={max_episode_steps: 500}")
    foresight = ("--model.gamma=0.99", "--model.entropy_coef=0.01", "--data.total_env_steps=200_000")

    must_reach(tmp_path, "ppo_cartpole_large.yaml", 200, *limits, *foresight)


def test_pendulum(tmp_path: Path) -> None:
    must_reach(tmp_path, "ppo_pendulum.yaml", -300)


def test_acrobot(tmp_path: Path) -> None:
    must_reach(tmp_path, "ppo_acrobot.yaml", -100)


def test_lunarlander(tmp_path: Path) -> None:
    pytest.importorskip("Box2D", reason="needs the extra box2d")

    must_reach(tmp_path, "ppo_lunarlander.yaml", 200)


def test_snake_beats_the_greedy_heuristic(tmp_path: Path) -> None:
    must_reach(tmp_path, "ppo_fast.yaml", 20, needed=3, of="food_mean")
