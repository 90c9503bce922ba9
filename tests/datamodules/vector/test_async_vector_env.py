import multiprocessing
import os
import signal
import time
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete

from datamodules.core.errors import ConfigurationError
from datamodules.core.signals import STOP_SIGNALS
from datamodules.vector.async_vector_env import SubprocVectorEnv
from datamodules.vector.gymnasium_adapter import GymnasiumVectorAdapter
from datamodules.vector.sync_vector_env import SerialVectorEnv
from tests.support.counting_env import (
    Counting,
    Dying,
    Hanging,
    Raising,
    transitions,
)

NOTHING = torch.zeros(2, dtype=torch.int64)


def workers(*makers, **how) -> GymnasiumVectorAdapter:
    return GymnasiumVectorAdapter(SubprocVectorEnv(makers, name="Counting", **how), device=torch.device("cpu"))


@pytest.fixture(autouse=True)
def no_orphans():
    yield
    assert multiprocessing.active_children() == []


def test_async_and_sync_give_the_same_transitions():
    makers = [partial(Counting, length=3, end="truncated", reuse=True), partial(Counting, length=2)]
    envs = workers(*makers)
    expected = transitions(GymnasiumVectorAdapter(SerialVectorEnv(makers), device=torch.device("cpu")), 12)
    assert transitions(envs, 12) == expected
    envs.close()


def test_a_worker_that_dies_is_named_with_its_exit_code():
    envs = workers(Counting, Dying)
    envs.reset(0)
    envs.step(NOTHING)
    with pytest.raises(RuntimeError, match=r"Environment 1 of Counting crashed.*exit code 9 "):
        envs.step(NOTHING)


def test_a_worker_that_was_killed_is_named():
    envs = workers(Counting, Counting)
    envs.reset(0)
    os.kill(envs.envs.processes[0].pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"Environment 0 of Counting crashed.*exit code -9 "):
        envs.step(NOTHING)


def test_a_worker_that_raises_shows_its_own_traceback():
    envs = workers(Counting, Raising)
    envs.reset(0)
    envs.step(NOTHING)
    with pytest.raises(
        RuntimeError, match=r"(?s)Environment 1 raised.*counting_env\.py.*UnreadableError: the second step"
    ):
        envs.step(NOTHING)


@pytest.mark.parametrize("call", ["its start", "its reset", "its step", "the reset after its step"])
def test_an_environment_that_hangs_is_named_with_its_action_and_its_worker_killed(call):
    asked = call if call in ("its start", "its reset") else "its step, or the reset after it, with action 7"
    with pytest.raises(ConfigurationError, match=f"^Environment 1 of Counting hung: {asked} did not return within"):
        envs = workers(partial(Counting, action_space=Discrete(5, start=3)), partial(Hanging, call), timeout=4.0)
        envs.envs.timeout = 1.5  # no process starts any more
        envs.reset(0)
        for _ in range(2):
            envs.step(torch.tensor([1, 4]))


def test_close_ends_a_worker_that_is_stuck():
    class Stuck(Counting):
        def step(self, action):
            time.sleep(600)

    envs = SubprocVectorEnv([Stuck], name="Stuck")
    envs.reset()
    envs.step_async(np.zeros(1, dtype=np.int64))
    envs.close(timeout=0.5)
    assert not any(process.is_alive() for process in envs.processes)


def test_workers_ignore_ctrl_c_termination_and_hangup():
    envs = workers(Counting, Counting)
    envs.reset(0)
    for process in envs.envs.processes:
        for stop in STOP_SIGNALS:
            os.kill(process.pid, stop)
    assert envs.step(NOTHING).reward.tolist() == [1, 1]
    envs.close()


def test_a_program_that_crashes_with_its_environments_open_still_ends():
    def crash():
        signal.signal(signal.SIGTERM, lambda *_: None)  # which a forked worker would inherit
        crash.envs = workers(Counting, Counting)
        crash.envs.reset(0)

    program = multiprocessing.get_context("fork").Process(target=crash)
    program.start()
    program.join(100)
    code = program.exitcode
    program.kill()
    assert code == 0
