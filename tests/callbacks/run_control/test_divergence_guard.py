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
        module.last_log = {tag: value for tag, value in named if value is not None}


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


@pytest.mark.parametrize(
    ("logs", "stops_at"),
    [
        ([STUCK] * 10, 10),
        ([STUCK] * 9, None),
        ([STUCK] * 9 + [(0.0, 1e-6, 9.1)] + [STUCK] * 9, None),  # the return changed
        ([STUCK] * 9 + [(0.0, 2e-6, 9.0)] + [STUCK] * 9, None),  # there was entropy
        ([STUCK] * 5 + [(0.0, 0.0, None)] * 5 + [STUCK] * 5, 15),  # logs without a return do not count
        ([(0.0, -2.0, 9.0)] * 12, None),  # a density may have any entropy
        ([(0.0, None, 9.0)] * 12, None),
    ],
)
def test_a_policy_without_entropy_and_with_the_same_return_in_ten_logs_stops_the_run(
    make_run: Any, logs: list[Any], stops_at: int | None
) -> None:
    run = make_run(Logs(*logs), DivergenceGuard(), iterations=len(logs), val_check_interval=100)

    sentence = f"by iteration {stops_at}: train/entropy was 0 and rollout/return_mean 9 in 10 logs in a row"
    with pytest.raises(TrainingDiverged, match=sentence) if stops_at else nullcontext():
        run.fit()

    assert run.trainer.global_step == (stops_at or len(logs))


def test_a_learning_rate_of_1e10_stops_the_run_although_its_weights_are_finite(make_run: Any) -> None:
    run = make_run(DivergenceGuard(), iterations=50, val_check_interval=100)
    run.module.learning_rate = 1e10

    with pytest.raises(TrainingDiverged, match="train/approx_kl says"):
        run.fit()

    assert all(weight.isfinite().all() for weight in run.module.parameters())
