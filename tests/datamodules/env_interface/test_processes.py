"""Environments in processes: how long they may take, and that they end with their parent."""

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from datamodules.core.errors import ConfigurationError
from tests.support.killed_parent import seconds_until_workers_end
from tests.support.small_runs import cartpole_data, small_ppo, trainer

BACKENDS = ("async", "pool")
HANGING = "tests.support.counting_env.Hanging"


@pytest.mark.parametrize("backend", BACKENDS)
def test_workers_end_within_seconds_of_a_killed_parent_even_in_a_step_that_hangs(backend: str) -> None:
    assert seconds_until_workers_end(backend, "its step", delay=0.5) < 60  # a hung step lasts 600 s


def hanging(backend: str, **changes: Any) -> Any:
    seconds = 4.0 if backend == "async" else 1.5  # the start of a process counts, or it does not
    return cartpole_data(env=HANGING, backend=backend, num_envs=2, total_env_steps=64, env_timeout=seconds, **changes)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_environment_that_hangs_ends_a_fit_in_one_sentence(backend: str, tmp_path: Path) -> None:
    data = hanging(backend, env_kwargs={"call": "its step"})

    with pytest.raises(
        ConfigurationError, match=r"Environment 0 of .*Hanging.* hung: its step.* with action \d did not return"
    ):
        trainer(tmp_path).fit(small_ppo(data), datamodule=data)

    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_environment_that_hangs_ends_an_evaluation_in_one_sentence(backend: str, tmp_path: Path) -> None:
    data = hanging(backend, eval_env_kwargs={"call": "its step"})

    with pytest.raises(
        ConfigurationError, match=r"Environment 0 of .*Hanging.* hung: its step.* with action \d did not return"
    ):
        trainer(tmp_path).validate(small_ppo(data), datamodule=data, verbose=False)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"backend": "sync", "env_timeout": 5.0}, r"data\.env_timeout is 5, but only .* not one of backend sync: set"),
        ({"backend": "auto", "env_timeout": 5.0}, r"data\.env_timeout is 5, but only .* not one of backend auto: set"),
        ({"backend": "pool", "env_timeout": 0.0}, r"data\.env_timeout is 0; it must be positive; \.inf disables"),
        ({"backend": "async", "env_timeout": float("nan")}, r"data\.env_timeout is nan; it must be positive"),
    ],
    ids=["sync", "auto", "zero", "nan"],
)
def test_a_time_that_cannot_act_is_refused_in_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        cartpole_data(**changes)
