"""`verify` trains a config shortly and reports; its exit status says whether something fails."""

from pathlib import Path

import pytest

from tests.app.conftest import Run


@pytest.mark.usefixtures("forked_programs")
@pytest.mark.timeout(600)
def test_the_checks_of_a_shipped_config_hold(folder: Path, run: Run) -> None:
    said = run("verify", "--config", "ppo_cartpole.yaml", "--only", "determinism", "export", "--data.num_envs=4")

    assert said.code == 0, said.out + said.err
    assert [line.split()[:2] for line in said.out.splitlines()[:2]] == [["determinism", "holds"], ["export", "holds"]]
    assert said.out.endswith("Nothing fails.\n")


@pytest.mark.usefixtures("forked_programs")
@pytest.mark.timeout(600)
def test_a_config_of_one_iteration_is_checked_over_more(folder: Path, run: Run) -> None:
    short = ["--data.num_envs=4", "--data.total_env_steps=4"]

    said = run("verify", "--config", "ppo_cartpole.yaml", "--only", "resume", *short)

    assert said.code == 0 and said.out.startswith("resume      cannot"), said.out + said.err


@pytest.mark.timeout(1800)
@pytest.mark.slow
def test_every_check_of_an_environment_that_saves_its_state_holds(folder: Path, run: Run) -> None:
    said = run("verify", "--config", "ppo_snake.yaml", "--data.num_envs=8", "--model.num_minibatches=4")

    assert said.code == 0, said.out + said.err
    assert said.out.count(" holds ") == 7


@pytest.mark.usefixtures("forked_programs")
def test_a_wrong_setting_is_said_in_one_sentence(folder: Path, run: Run) -> None:
    said = run("verify", "--config", "ppo_cartpole.yaml", "--data.num_envs=0")

    assert said.code == 2 and "num_envs" in said.err
