"""Environments that hang in every call, and parents that are killed at random moments: no worker stays."""

import multiprocessing
import random
from pathlib import Path
from typing import Any

import pytest

from datamodules.core.errors import ConfigurationError
from tests.fault import print_count
from tests.support.killed_parent import seconds_until_workers_end
from tests.support.small_runs import cartpole_data, small_ppo, trainer

BACKENDS = ("async", "pool")
CALLS = ("its start", "its reset", "its step", "the reset after its step")
KILLS, SECONDS, TIMEOUT = 10, 60.0, 4.0


@pytest.mark.fault
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_environment_that_hangs_ends_training_and_evaluation_with_its_name(backend: str, tmp_path: Path) -> None:
    held = 0
    settings: dict[str, Any] = {"env": "tests.support.counting_env.Hanging", "backend": backend, "num_envs": 2}

    for call in CALLS:
        for where in ("env_kwargs", "eval_env_kwargs"):
            data = cartpole_data(**settings, env_timeout=TIMEOUT, **{where: {"call": call}})
            run, model = trainer(tmp_path), small_ppo(data)
            asked = call if call in ("its start", "its reset") or backend == "pool" else "its step, or the reset after"
            try:
                run.fit(model, datamodule=data) if where == "env_kwargs" else run.validate(model, datamodule=data)
            except ConfigurationError as error:
                named = "Environment 0 of" in str(error) and f"hung: {asked}" in str(error)
                held += named and ("with action" in str(error)) is (asked not in ("its start", "its reset"))
            held -= bool(multiprocessing.active_children())

    print_count(f"environments of {backend} that hang, named", held, 2 * len(CALLS))
    assert held == 2 * len(CALLS)


@pytest.mark.fault
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("call", ["its step", ""], ids=["hung", "busy"])
def test_workers_end_when_their_parent_is_killed(backend: str, call: str) -> None:
    draw = random.Random(backend + call)

    lived = [seconds_until_workers_end(backend, call, delay=draw.uniform(0, 1)) for _ in range(KILLS)]

    held = sum(seconds < SECONDS for seconds in lived)
    fault = f"{'hung' if call else 'busy'} workers of {backend} whose parent was killed, gone after {max(lived):.1f} s"
    print_count(fault, held, KILLS)
    assert held == KILLS
