import math
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from callbacks.checkpoint import Checkpoint
from callbacks.stability import Diverged, Stability


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
    make_run(Reports(1.0), Stability(), iterations=2, val_check_interval=100).fit()

    with pytest.raises(Diverged, match=rf"by iteration 1: train/mine is {value}\."):
        make_run(Reports(value), Stability(), val_check_interval=100).fit()


def test_a_value_that_is_not_finite_stops_the_run_with_one_sentence(make_run: Any) -> None:
    run = make_run(Stability(), Poisons(1), val_check_interval=100)

    with pytest.raises(Diverged, match=r"by iteration 2: train/\w+ is nan.*learning_rate.*max_grad_norm"):
        run.fit()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_weights_that_are_not_finite_never_replace_good_ones(make_run: Any, value: float) -> None:
    run = make_run(Stability(), Poisons(2, value), Checkpoint(every_n_iterations=1), val_check_interval=100)

    with pytest.raises(Diverged, match="weights critic"):
        run.fit()

    last = torch.load(run.folder / "checkpoints" / "last.ckpt", weights_only=True)
    assert last["global_step"] == 1
    assert all(value.isfinite().all() for value in last["state_dict"].values())


def test_a_healthy_run_is_left_alone(make_run: Any) -> None:
    run = make_run(Stability(), Checkpoint()).fit()

    assert run.trainer.global_step == 4
