from pathlib import Path
from typing import Any

import pytest
import torch

from callbacks.performance.compile import Compile
from callbacks.performance.execution_summary import ExecutionSummary, backend, form, pinned, rows_per_call
from datamodules.core.phase import Phase
from datamodules.vector.make_env import make_vector_env
from tests.support.ddp_agents_worker import agents_data
from tests.support.small_runs import Told, fitted

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


class Grouped:
    """Environments in groups, each with its own policy call, whose memory is pinned."""

    is_stateless, pinned, groups = False, True, (slice(0, 5), slice(5, 9))


class WorkerPoolVectorEnv(Grouped):
    """Called as in a configuration."""


def test_it_prints_once_what_was_really_used(make_run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(ExecutionSummary(), iterations=3).fit()

    out = capsys.readouterr().out
    assert out.count("Execution:") == 1
    assert "4 x CartPole-v1, backend sync" in out
    assert "collect eager, prepare eager, update eager" in out
    assert "32-true" in out and "1 thread of torch" in out and "4 rows a policy call" in out


def test_a_joint_that_fell_back_is_told_with_what_was_asked_for() -> None:
    def branches_on_a_value(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum().item() > 0 else x

    owner = type("Owner", (), {"branch": staticmethod(branches_on_a_value)})()
    phase = Phase(lambda x: owner.branch(x), CPU, compile_targets=[(owner, "branch")])
    phase.mode = "default"

    with pytest.warns(UserWarning, match="cannot be compiled"):
        phase(torch.ones(2))

    assert form(phase) == "eager (requested: default)"


def test_what_has_no_parts_is_eager_as_it_should_be() -> None:
    phase = Phase(torch.neg, CPU)
    phase.mode = "default"

    assert form(phase) == "eager"


def test_the_summary_tells_the_joints_not_the_setting(make_run: Any) -> None:
    told = Told()

    make_run(Compile("off"), ExecutionSummary(), told, iterations=1, env="Snake-v0").fit()

    assert told.forms["environments"] == "4 x Snake-v0, backend device"
    assert told.forms["pinned memory"] == "not needed, nothing is copied between devices"


@pytest.mark.parametrize("asked", ["sync", "vector", "async", "envpool"])
def test_backends_are_named_as_in_a_configuration(asked: str) -> None:
    if asked == "envpool":
        pytest.importorskip("envpool", reason="needs the extra envpool")
    envs = make_vector_env("CartPole-v1", 2, backend=asked)

    assert backend(envs) == asked
    envs.close()


def test_a_pool_is_named_and_its_halves_and_pinned_memory_are_told() -> None:
    pool = WorkerPoolVectorEnv()
    collector = type("Rows", (), {"envs": pool, "rows": 9})()

    assert (backend(pool), rows_per_call(collector)) == ("pool", 5)
    assert (pinned(pool, CUDA), pinned(pool, CPU)[:10]) == ("yes", "not needed")


def test_agents_and_those_that_learn_are_named(tmp_path: Path) -> None:
    told = Told()
    fitted(tmp_path, agents_data(env="tests.support.parallel_env.Relay"), told, max_steps=1)
    expected = "4 x tests.support.parallel_env.Relay of 3 agents, 2 of which learn, backend sync"
    assert told.forms["environments"] == expected
