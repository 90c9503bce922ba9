from typing import Any

import pytest
from lightning.pytorch import Callback

from callbacks.performance.throughput import Throughput


class Clock(Callback):
    """A clock by which an iteration takes a second and an evaluation four."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def on_train_batch_start(self, *_: Any) -> None:
        self.now += 1

    def on_validation_epoch_start(self, *_: Any) -> None:
        self.now += 4


def shares(values: dict[str, float]) -> dict[str, float]:
    return {tag: value for tag, value in values.items() if tag.endswith("_share")}


def test_shares_of_the_wall_clock_add_up_to_one(make_run: Any) -> None:
    run = make_run(Throughput()).fit()

    found = shares(run.module.last_logged)

    names = ("collect", "prepare", "update", "eval", "other")
    assert set(found) == {f"time/{name}_share" for name in names}
    assert sum(found.values()) == pytest.approx(1)
    assert found["time/collect_share"] > 0 and found["time/update_share"] > 0


def test_collecting_beside_the_rest_is_left_out_of_the_sum(make_run: Any) -> None:
    run = make_run(Throughput(), policy_lag=1).fit()

    found = shares(run.module.last_logged)

    assert sum(found.values()) - found["time/collect_share"] == pytest.approx(1)


def test_evaluation_takes_its_share_and_no_speed(make_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("callbacks.performance.throughput.time", clock)
    run = make_run(clock, Throughput(), iterations=4, log_every_n_steps=4, val_check_interval=2)

    run.fit()

    logged = run.module.last_logged
    assert logged["time/eval_share"] == pytest.approx(4 / (4 + 4))
    assert logged["time/env_steps_per_s"] == pytest.approx(4 * 32 / 4)
    assert logged["time/updates_per_s"] == pytest.approx(4 * 2 / 4)


class Counted(Throughput):
    """Remembers the iterations it logged at."""

    def __init__(self) -> None:
        self.logged_at: list[int] = []

    def measure(self, trainer: Any, pl_module: Any) -> dict[str, float]:
        self.logged_at.append(trainer.global_step)
        return super().measure(trainer, pl_module)


def test_it_logs_as_often_as_the_trainer_and_at_the_end(make_run: Any) -> None:
    throughput = Counted()

    make_run(throughput, iterations=5, log_every_n_steps=2, limit_val_batches=0).fit()

    assert throughput.logged_at == [2, 4, 5]
