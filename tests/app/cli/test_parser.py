"""The parser keeps what it made for one command line, without its settings."""

import pytest
import yaml

from tests.app.conftest import Run


def test_a_setting_of_one_command_line_does_not_reach_the_next(run: Run) -> None:
    words = ("fit", "--config", "ppo_cartpole.yaml", "--print_config")
    before = run(*words)

    changed = run(*words, "--model.network.hidden=[5]", "--model.optimizer.lr=0.5", "--data.num_envs=3")

    assert changed.out != before.out
    assert run(*words) == before


def test_null_beside_a_value_that_json_lacks_is_no_error(run: Run) -> None:
    word = "--data.env_kwargs.names=[!!binary aGk=, null]"

    assert run("fit", "--config", "ppo_snake_6x6.yaml", word, "--print_config").code == 0


@pytest.mark.parametrize(
    ("word", "path", "value"),
    [
        ("--data.env_kwargs.max_start_length=null", ("data", "env_kwargs", "max_start_length"), None),
        ("--data.env_kwargs.rewards={food: null, death: 1.5}", ("data", "env_kwargs", "rewards", "food"), None),
        ("--model.network.scale=null", ("model", "network", "init_args", "scale"), None),
        ("--data.num_workers=null", ("data", "num_workers"), None),
        ("--data.env_kwargs.observation=planes", ("data", "env_kwargs", "observation"), "planes"),
    ],
)
def test_null_stays_null_at_any_depth(run: Run, word: str, path: tuple[str, ...], value: object) -> None:
    outcome = run("fit", "--config", "ppo_snake_6x6.yaml", word, "--print_config")

    found = yaml.safe_load(outcome.out)
    for name in path:
        found = found[name] if name in found else found["init_args"][name]
    assert outcome.code == 0 and found == value
