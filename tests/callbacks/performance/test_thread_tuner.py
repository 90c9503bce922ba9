import copy
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from callbacks.performance.thread_tuner import ThreadTuner, WorkloadTimer, hill_climb, most_threads
from datamodules.core.errors import ConfigurationError


class Seen(Callback):
    """Notes the number of threads while training, and can break the run off."""

    def __init__(self, error: Exception | None = None):
        self.error, self.threads = error, 0

    def on_train_batch_end(self, *_: Any) -> None:
        self.threads = torch.get_num_threads()
        if self.error is not None:
            raise self.error


class Compared(Callback):
    """Takes a sample between two iterations and keeps what must not have changed, before and after it."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        def state() -> tuple[Any, ...]:
            gradients = [parameter.grad for parameter in pl_module.parameters()]
            modes = [module.training for module in pl_module.modules()]
            collector = trainer.datamodule.collector
            rest = torch.get_rng_state().tolist(), collector.generator.get_state().tolist(), torch.get_num_threads()
            return str(pl_module.state_dict()), gradients, modes, rest

        self.before = copy.deepcopy(state())
        self.seconds = WorkloadTimer(trainer, pl_module).seconds(2)
        self.after = state()


@pytest.mark.parametrize("error", [None, RuntimeError("broken off")])
def test_the_number_asked_for_holds_during_the_fit_and_no_longer(make_run: Any, error: Exception | None) -> None:
    seen = Seen(error)
    run = make_run(ThreadTuner(2), seen)

    if error is None:
        run.fit()
    else:
        with pytest.raises(RuntimeError, match="broken off"):
            run.fit()

    assert (seen.threads, torch.get_num_threads()) == (2, 1)


def test_collecting_and_learning_share_the_cores_where_they_go_on_at_once(
    make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr("callbacks.performance.thread_tuner.most_threads", lambda ranks: asked.append(ranks) or 1)

    for policy_lag in (0, 1):
        make_run(ThreadTuner(), policy_lag=policy_lag).fit()

    assert asked == [1, 2]


def test_auto_says_in_one_line_what_it_chose_and_why(
    make_run: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("callbacks.performance.thread_tuner.most_threads", lambda ranks: 2)
    seen = Seen()

    with caplog.at_level("INFO"):
        make_run(ThreadTuner(), seen, iterations=2).fit()

    (line,) = [message for message in caplog.messages if message.startswith("Torch computes on")]
    assert line.startswith(f"Torch computes on {seen.threads} thread")
    assert " ms on 1, " in line and line.endswith(" ms on 2.")


@pytest.mark.parametrize("env", ["CartPole-v1", "tests.support.parts_env.TensorReach"])
def test_measuring_changes_nothing(make_run: Any, env: str) -> None:
    compared = Compared()

    make_run(compared, iterations=2, env=env).fit()

    assert compared.seconds > 0
    assert compared.before == compared.after


def test_auto_and_the_number_it_chooses_learn_the_same_weights(make_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "3")
    monkeypatch.setattr(
        "callbacks.performance.thread_tuner.hill_climb",
        lambda seconds_on, limit: (1, {1: seconds_on(1), 2: seconds_on(2)}),
    )
    monkeypatch.setattr("callbacks.performance.thread_tuner.most_threads", lambda ranks: 2)

    weights = []
    for threads in (ThreadTuner(), ThreadTuner(1)):
        torch.manual_seed(3)
        weights.append(make_run(threads).fit().module.state_dict())

    torch.testing.assert_close(*weights, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("milliseconds", "chosen", "tried"),
    [
        ({1: 10, 2: 9.5}, 1, [1, 2]),
        ({1: 10, 2: 6, 4: 5.9, 8: 1}, 2, [1, 2, 4]),
        ({1: 10, 2: 6, 3: 4}, 3, [1, 2, 3]),
        ({1: 10, 2: 200}, 1, [1, 2]),
    ],
)
def test_more_threads_must_be_clearly_faster(milliseconds: dict[int, float], chosen: int, tried: list[int]) -> None:
    found, times = hill_climb(milliseconds.__getitem__, max(milliseconds))

    assert (found, list(times)) == (chosen, tried)


def test_one_slow_measurement_on_more_threads_means_that_the_cores_are_busy() -> None:
    on_two = iter([6.0, 6.0, 15.0, 6.0, 6.0])

    assert hill_climb(lambda threads: 10.0 if threads == 1 else next(on_two), 2) == (1, {1: 10.0, 2: 6.0})


def test_the_environment_variable_and_the_ranks_limit_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(8), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    free = most_threads(ranks=2)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")

    assert (free, most_threads(ranks=2), most_threads(ranks=16)) == (4, 3, 1)


def test_a_resumed_run_keeps_its_number(make_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callbacks.performance.thread_tuner.most_threads", lambda ranks: 2)
    resumed, seen = ThreadTuner(), Seen()
    resumed.load_state_dict({"threads": 2})

    make_run(resumed, seen, iterations=1).fit()

    assert seen.threads == 2


def test_no_threads_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="threads is 0; give auto"):
        ThreadTuner(0)
