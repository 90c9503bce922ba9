import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from datamodules.core.errors import ConfigurationError
from datamodules.core.signals import STOP_SIGNALS
from datamodules.vector.gymnasium_adapter import GymnasiumVectorAdapter
from datamodules.vector.sync_vector_env import SerialVectorEnv
from datamodules.worker_pool import supervisor
from datamodules.worker_pool.vector_env import WorkerPoolVectorEnv
from tests.support.counting_env import (
    Counting,
    Dying,
    Hanging,
    Masking,
    Raising,
    copied,
    transitions,
)
from tests.support.image_env import Images
from tests.support.small_runs import cartpole_data, small_ppo, trainer

CPU = torch.device("cpu")
NOTHING = torch.zeros(2, dtype=torch.int64)
CARTPOLE = partial(gym.make, gym.spec("CartPole-v1"), disable_env_checker=True)


class Stuck(Counting):
    """Never comes back from its first step."""

    def step(self, action):
        time.sleep(600)


class Unmade(Counting):
    """Can be made in the process that imported it, nowhere else."""

    parent = os.getpid()

    def __init__(self):
        assert os.getpid() == self.parent, "only at home"
        super().__init__()


@pytest.fixture(autouse=True)
def no_orphans():
    yield
    assert multiprocessing.active_children() == []


def pool(*makers: Callable[[], gym.Env], workers: int = 2, **kwargs) -> WorkerPoolVectorEnv:
    return WorkerPoolVectorEnv(makers, num_workers=workers, device=CPU, name="Counting", **kwargs)


def sync(*makers: Callable[[], gym.Env]) -> GymnasiumVectorAdapter:
    return GymnasiumVectorAdapter(SerialVectorEnv(makers), device=CPU)


def test_pool_and_sync_give_the_same_transitions():
    ends = ("terminated", "truncated", "both", "truncated", "truncated")
    makers = [partial(Counting, length=length, end=end, reuse=True) for length, end in enumerate(ends, start=1)]
    with closing(pool(*makers)) as envs:
        found = [transitions(envs, 12), transitions(envs, 12), transitions(envs, 12, seed=3)]
    expected = sync(*makers)
    assert found[0] == found[1] == transitions(expected, 12)
    assert found[2] == transitions(expected, 12, seed=3) != found[0]


@pytest.mark.parametrize(("make", "num_envs"), [(CARTPOLE, 5), (partial(Images, length=4), 4)])
def test_real_episodes_are_those_of_sync(make, num_envs):
    actions = torch.randint(2, (60, num_envs))
    expected = sync(*[make] * num_envs)
    with closing(pool(*[make] * num_envs, seed=7)) as envs:
        assert torch.equal(envs.reset()[0], expected.reset(7)[0])
        for action in actions:
            step, other = envs.step(action), expected.step(action)
            for ours, theirs in zip(step[:4], other[:4], strict=True):
                assert torch.equal(ours, theirs)
            assert (step.final_obs is None) == (other.final_obs is None)


def test_one_half_steps_while_the_other_waits():
    makers = [partial(Counting, length=length, end="truncated") for length in (2, 3, 4)]
    with closing(pool(*makers)) as envs, closing(pool(*makers)) as whole:
        envs.reset(0), whole.reset(0)
        assert envs.groups == (slice(0, 2), slice(2, 3))
        envs.send(0, NOTHING)
        for _ in range(9):
            envs.send(1, NOTHING[:1])
            first = copied(envs.receive(0))
            envs.send(0, NOTHING)
            second, both = envs.receive(1), whole.step(torch.zeros(3, dtype=torch.int64))
            assert torch.equal(torch.cat([first.obs, second.obs]), both.obs)
            assert torch.equal(torch.cat([first.truncated, second.truncated]), both.truncated)
            assert (first.final_obs is not None) == bool(first.truncated.any())
            if second.final_obs is not None:
                assert second.final_obs[0, 1] == 4


def test_a_single_environment_has_an_empty_half():
    with closing(pool(partial(Counting, length=2))) as envs:
        assert (envs.num_workers, envs.groups) == (1, (slice(0, 1), slice(1, 1)))
        assert transitions(envs, 6) == transitions(sync(partial(Counting, length=2)), 6)


def test_a_worker_that_dies_is_named_with_its_exit_code():
    envs = pool(Counting, Counting, Counting, Dying)
    envs.reset(0)
    envs.step(torch.zeros(4, dtype=torch.int64))
    with pytest.raises(RuntimeError, match=r"Environment 3 of Counting crashed.*exit code 9 "):
        envs.step(torch.zeros(4, dtype=torch.int64))


def test_a_worker_that_was_killed_is_named_by_its_environments():
    envs = pool(*[Counting] * 4)
    envs.reset(0)
    os.kill(envs.processes[0].pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"One of the environments \[0, 2\] of Counting crashed.*exit code -9 "):
        envs.step(torch.zeros(4, dtype=torch.int64))


def test_a_worker_that_raises_shows_its_own_traceback():
    envs = pool(Counting, Raising)
    envs.reset(0)
    envs.step(NOTHING)
    with pytest.raises(RuntimeError, match=r"(?s)Environment 1 raised.*in step\n.*UnreadableError: the second step"):
        envs.step(NOTHING)


def test_an_environment_that_cannot_be_made_in_a_worker_shows_its_traceback():
    envs = pool(Unmade, Unmade)
    with pytest.raises(RuntimeError, match=r"(?s)Environment 0 raised in its.*AssertionError: only at home"):
        envs.reset(0)


@pytest.mark.parametrize("call", ["its start", "its reset", "its step", "the reset after its step"])
def test_an_environment_that_hangs_is_named_with_its_action_and_its_worker_killed(call, monkeypatch):
    monkeypatch.setattr(supervisor, "WORKER_GRACE_S", 0.2)
    action = "" if call in ("its start", "its reset") else r" with action 7"
    sentence = f"^Environment 1 of Counting hung: {call}{action} did not return within data.env_timeout \\(1.5 s\\);"
    envs = pool(partial(Counting, action_space=Discrete(5, start=3)), partial(Hanging, call), timeout=1.5)
    with pytest.raises(ConfigurationError, match=sentence):
        envs.reset(0)
        for _ in range(2):
            envs.step(torch.tensor([1, 4]))
    assert not any(process.is_alive() for process in envs.processes)


def test_the_time_is_each_environments_own_and_not_that_of_all_that_share_a_worker():
    makers = [partial(Hanging, "its step", seconds=0.3)] * 8
    with closing(pool(*makers, workers=1, timeout=2.0)) as envs:
        envs.reset(0)
        for _ in range(2):
            rewards = envs.step(torch.zeros(8, dtype=torch.int64)).reward
    assert rewards.tolist() == [2] * 8


def test_close_ends_a_worker_that_is_stuck_and_may_be_repeated():
    envs = pool(Stuck, Counting)
    envs.reset(0)
    envs.send(0, NOTHING[:1])
    envs.close()
    envs.close()
    assert not any(process.is_alive() for process in envs.processes)


def test_workers_ignore_ctrl_c_termination_and_hangup():
    with closing(pool(Counting, Counting)) as envs:
        for stop in STOP_SIGNALS:  # from their first moment on, before the first reset
            os.kill(envs.processes[0].pid, stop)
        envs.reset(0)
        assert envs.step(NOTHING).reward.tolist() == [1, 1]


def test_halves_are_sent_and_received_in_turn():
    envs = pool(Counting, Counting)
    envs.reset(0)
    with pytest.raises(RuntimeError, match=r"Half 1 of the pool of Counting has no pending step: send actions first\."):
        envs.receive(1)
    envs.send(0, NOTHING[:1])
    with pytest.raises(RuntimeError, match=r"The pool of Counting has a pending step of half 0: receive it first\."):
        envs.send(0, NOTHING[:1])
    assert envs.reset(0)[0][:, 1].tolist() == [0, 0]
    envs.close()
    with pytest.raises(RuntimeError, match=r"The pool of Counting has been closed\."):
        envs.step(NOTHING)


SCRIPT = """
import functools, torch
import gymnasium as gym
from datamodules.worker_pool import supervisor
from datamodules.worker_pool.vector_env import WorkerPoolVectorEnv

if __name__ == "__main__":
    make = functools.partial(gym.make, "CartPole-v1")
    envs = WorkerPoolVectorEnv([make] * 4, num_workers=2, device=torch.device("cpu"))
    envs.reset(0)
"""


def test_nothing_is_left_of_a_program_that_forgets_to_close():
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", SCRIPT]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100)  # until every process closed its output
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_worker_needs_no_torch():
    code = "import datamodules.worker_pool.worker, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("makers", "workers", "sentence"),
    [
        ([], 1, r"num_envs is 0; it must be at least 1\."),
        ([Counting], 0, r"num_workers is 0; it must be at least 1\."),
        ([partial(Counting, action_space=Box(-np.inf, np.inf))], 1, "without finite bounds"),
        ([partial(Counting, length=threading.Lock())], 1, r"Counting cannot be sent .* \(.*\): choose backend sync"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(makers, workers, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        pool(*makers, workers=workers)


def test_workers_are_never_more_than_half_the_environments():
    with closing(pool(*[Counting] * 5, workers=16)) as envs:
        assert envs.num_workers == 2


def test_ranks_of_a_host_share_its_cores(tmp_path, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)), raising=False)
    data = cartpole_data(backend="pool", num_envs=8)
    data.trainer = trainer(tmp_path, strategy="ddp", devices=2)
    data.trainer.strategy.connect(small_ppo(data))

    with closing(data.make_collector().envs) as envs:
        assert envs.num_workers == 2


@pytest.mark.gpu
@pytest.mark.parametrize("pin_memory", [True, False])
def test_steps_on_a_gpu_are_those_on_the_host(pin_memory):
    makers = [partial(Masking, length=length, end="truncated") for length in (2, 3, 4)]
    on_gpu = WorkerPoolVectorEnv(makers, num_workers=1, device=torch.device("cuda", 0), pin_memory=pin_memory)
    with closing(on_gpu), closing(pool(*makers)) as on_host:
        assert on_gpu.pinned == pin_memory
        assert torch.equal(on_gpu.reset(0)[0].cpu(), on_host.reset(0)[0])
        for action in torch.randint(2, (20, 3)):
            step, other = on_gpu.step(action.cuda()), on_host.step(action)
            assert step.obs.is_cuda
            assert all(torch.equal(ours.cpu(), theirs) for ours, theirs in zip(step[:4], other[:4], strict=True))
            assert torch.equal(step.info["action_mask"].cpu(), other.info["action_mask"])
            if other.final_obs is not None:
                assert torch.equal(step.final_obs[other.truncated].cpu(), other.final_obs[other.truncated])
