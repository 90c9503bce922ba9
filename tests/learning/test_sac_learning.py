"""SAC's shipped configs reach their references, through the real command line, judged by the last weights."""

from pathlib import Path

import pytest

from tests.learning.test_ppo_learning import must_reach, score

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def test_pendulum(tmp_path: Path) -> None:
    must_reach(tmp_path, "sac_pendulum.yaml", -200, needed=3)


def test_pendulum_without_velocity(tmp_path: Path) -> None:
    must_reach(tmp_path, "sac_pendulum_memory.yaml", -250)


def test_mountaincar_continuous(tmp_path: Path) -> None:
    must_reach(tmp_path, "sac_mountaincar.yaml", 90)


def test_cartpole_with_choices(tmp_path: Path) -> None:
    must_reach(tmp_path, "sac_cartpole.yaml", 400)


def test_curiosity_leaves_the_valley_that_independent_pushes_never_leave(tmp_path: Path) -> None:
    plain = ("--model.noise_hold=1", "--model.normalize_obs=true", "--data.total_env_steps=12_000")
    plain = (*plain, "--data.batch_size=128", "--data.replay_ratio=128")
    mountain = "sac_mountaincar.yaml"

    must_reach(tmp_path, mountain, 90, *plain, "--model.curiosity=modules.Curiosity", needed=3)

    assert score(tmp_path / "without", mountain, 1, *plain, of="return_mean") < 0
