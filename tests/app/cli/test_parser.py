"""The parser keeps what it made for one command line, without its settings."""

from tests.app.conftest import Run


def test_a_setting_of_one_command_line_does_not_reach_the_next(run: Run) -> None:
    words = ("fit", "--config", "ppo_cartpole.yaml", "--print_config")
    before = run(*words)

    changed = run(*words, "--model.network.hidden=[5]", "--model.optimizer.lr=0.5", "--data.num_envs=3")

    assert changed.out != before.out
    assert run(*words) == before
