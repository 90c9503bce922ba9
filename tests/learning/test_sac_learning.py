"""SAC's shipped configs reach their references, through the real command line, judged by the last weights."""

from pathlib import Path

import pytest

from tests.learning.test_ppo_learning import must_reach

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def test_pendulum(tmp_path: Path) -> None:
    must_reach(tmp_path, "sac_pendulum.yaml", -200, needed=3)


def test_mountaincar_continuous(tmp_path: Path) -> None:
    must_reach(tmp_path, "sac_mountaincar.yaml", 90)


def test_cartpole_with_choices(tmp_path: Path) -> None:
    must_reach(tmp_path, "sac_cartpole.yaml", 400)
