import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from callbacks.run_control.checkpoint import RunCheckpoint
from callbacks.run_control.divergence_guard import DivergenceGuard, TrainingDiverged


class Poisons(Callback):
    """Fills one weight with a value after an iteration."""

    def __init__(self, iteration: int, value: float = math.nan) -> None:
        self.iteration, self.value = iteration, value

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        if trainer.global_step == self.iteration:
            with torch.no_grad():
                next(module.critic.parameters()).fill_(self.value)


class Reports(Callback):
    """Logs a value."""

    def __init__(self, value: float) -> None:
        self.value = value

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        module.log_values({"train/mine": self.value, "eval/mine": math.nan})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_whatever_is_not_finite_among_the_values_of_training_stops_the_run(make_run: Any, value: float) -> None:
    make_run(Reports(1.0), DivergenceGuard(), iterations=2, val_check_interval=100).fit()

    with pytest.raises(TrainingDiverged, match=rf"by iteration 1: train/mine is {value}\."):
        make_run(Reports(value), DivergenceGuard(), val_check_interval=100).fit()


def test_a_value_that_is_not_finite_stops_the_run_with_one_sentence(make_run: Any) -> None:
    run = make_run(DivergenceGuard(), Poisons(1), val_check_interval=100)

    with pytest.raises(TrainingDiverged, match=r"by iteration 2: train/\w+ is nan.*learning_rate.*max_grad_norm"):
        run.fit()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_weights_that_are_not_finite_never_replace_good_ones(make_run: Any, value: float) -> None:
    run = make_run(DivergenceGuard(), Poisons(2, value), RunCheckpoint(every_n_iterations=1), val_check_interval=100)

    with pytest.raises(TrainingDiverged, match="weights critic"):
        run.fit()

    last = torch.load(run.folder / "checkpoints" / "last.ckpt", weights_only=True)
    assert last["global_step"] == 1
    assert all(value.isfinite().all() for value in last["state_dict"].values())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nobody_else_saves_weights_that_are_not_finite_either(make_run: Any, tmp_path: Path, value: float) -> None:
    class Saves(Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            trainer.save_checkpoint(tmp_path / f"{trainer.global_step}.ckpt")

    run = make_run(Poisons(2, value), Saves(), DivergenceGuard(), val_check_interval=100)
    with pytest.raises(TrainingDiverged, match="weights critic"):
        run.fit()

    assert [path.name for path in tmp_path.glob("*.ckpt")] == ["1.ckpt"]


def test_a_healthy_run_is_left_alone(make_run: Any) -> None:
    run = make_run(DivergenceGuard(), RunCheckpoint()).fit()

    assert run.trainer.global_step == 4


class Logs(Callback):
    """Puts a log in place of each iteration's: KL, entropy and return, None for what it does not report."""

    def __init__(self, *logs: tuple[float, float | None, float | None]) -> None:
        self.logs = list(logs)

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        named = zip(("train/approx_kl", "train/entropy", "rollout/return_mean"), self.logs.pop(0), strict=True)
        module.last_training_log = {tag: value for tag, value in named if value is not None}


@pytest.mark.parametrize(("kl", "stops"), [(100.0, False), (100.1, True), (-100.1, True)])
def test_a_policy_that_moved_by_more_than_100_nats_stops_the_run(make_run: Any, kl: float, stops: bool) -> None:
    run = make_run(Logs((0.01, 0.6, 20.0), (kl, 0.6, 20.0)), DivergenceGuard(), iterations=2, val_check_interval=100)

    with (
        pytest.raises(TrainingDiverged, match=r"by iteration 2: train/approx_kl .* more than 100")
        if stops
        else nullcontext()
    ):
        run.fit()

    assert run.trainer.global_step == 2


STUCK = (0.0, 1e-6, 9.0)
BEGINS = (0.0, 0.6, 9.0)


@pytest.mark.parametrize(
    ("logs", "stops_at"),
    [
        ([STUCK] * 9, None),
        ([STUCK] * 9 + [(0.0, 1e-6, 8.9)] + [STUCK] * 9, None),  # the return changed
        ([STUCK] * 9 + [(0.0, 2e-6, 9.0)] + [STUCK] * 9, None),  # there was entropy
        ([STUCK] * 5 + [(0.0, 0.0, None)] * 5 + [STUCK] * 5, 15),  # logs without a return do not count
        ([STUCK] * 10, 10),
        ([(0.0, -2.0, 9.0)] * 12, None),  # a density may have any entropy
        ([(0.0, None, 9.0)] * 12, None),
    ],
)
def test_a_policy_without_entropy_and_with_the_same_return_in_ten_logs_stops_the_run(
    make_run: Any, logs: list[Any], stops_at: int | None
) -> None:
    logs, stops_at = [BEGINS, *logs], stops_at and stops_at + 1
    run = make_run(Logs(*logs), DivergenceGuard(), iterations=len(logs), val_check_interval=100)

    sentence = f"by iteration {stops_at}: train/entropy was 0 and rollout/return_mean 9 in 10 logs in a row"
    with pytest.raises(TrainingDiverged, match=sentence) if stops_at else nullcontext():
        run.fit()

    assert run.trainer.global_step == (stops_at or len(logs))


@pytest.mark.parametrize(
    ("before", "stuck", "stops"),
    [
        ([20.0], 9.0, True),  # fell below what it was
        ([20.0, 500.0], 20.0, True),  # learned, and lost it
        ([20.0, 500.0], 300.0, True),  # lost much of it
        ([-200.0, -200.0], -200.0, True),  # never learned
        ([20.0, 499.0], 500.0, False),  # solved
        ([20.0, 500.0], 500.0, False),
        ([20.0, 500.0, 460.0], 498.0, False),  # a mean of noisy episodes was higher
        ([20.0], 500.0, False),  # solved within one log
        ([0.0, -500.0], 0.0, False),  # a return whose best is zero
        ([], 500.0, False),  # a solved policy, trained further
    ],
)
def test_a_policy_that_solved_its_task_without_entropy_goes_on(
    make_run: Any, before: list[float], stuck: float, stops: bool
) -> None:
    logs = [(0.0, 0.6, return_) for return_ in before] + [(0.0, 0.0, stuck)] * 12
    run = make_run(Logs(*logs), DivergenceGuard(), iterations=len(logs), val_check_interval=100)

    with pytest.raises(TrainingDiverged, match="nothing is learned any more") if stops else nullcontext():
        run.fit()

    assert run.trainer.global_step == len(before) + (10 if stops else 12)


@pytest.mark.parametrize(("stuck", "stops"), [(500.0, False), (9.0, True)])
def test_a_resumed_run_knows_the_returns_before(make_run: Any, stuck: float, stops: bool) -> None:
    first = make_run(Logs((0.0, 0.6, 20.0), (0.0, 0.6, 500.0)), DivergenceGuard(), RunCheckpoint(), iterations=2).fit()
    resumed = make_run(Logs(*[(0.0, 0.0, stuck)] * 12), DivergenceGuard(), iterations=14, version="resumed")

    with pytest.raises(TrainingDiverged, match="after returns from 20 to 500") if stops else nullcontext():
        resumed.fit(first.folder / "checkpoints" / "last.ckpt")


def test_a_learning_rate_of_1e10_stops_the_run_although_its_weights_are_finite(make_run: Any) -> None:
    run = make_run(DivergenceGuard(), iterations=50, val_check_interval=100)
    run.module.learning_rate = 1e10

    with pytest.raises(TrainingDiverged, match="train/approx_kl says"):
        run.fit()

    assert all(weight.isfinite().all() for weight in run.module.parameters())
