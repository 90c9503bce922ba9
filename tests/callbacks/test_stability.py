from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from callbacks.checkpoint import Checkpoint
from callbacks.stability import Diverged, Stability


class Poisons(Callback):
    """Makes one weight NaN before an iteration."""

    def __init__(self, iteration: int) -> None:
        self.iteration = iteration

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        if trainer.global_step == self.iteration:
            with torch.no_grad():
                next(module.critic.parameters()).fill_(float("nan"))


def test_a_value_that_is_not_finite_stops_the_run_with_one_sentence(make_run: Any) -> None:
    run = make_run(Stability(), Poisons(1), val_check_interval=100)

    with pytest.raises(Diverged, match=r"by iteration 2: train/\w+ is nan.*learning_rate.*max_grad_norm"):
        run.fit()


def test_weights_that_are_not_finite_never_replace_good_ones(make_run: Any) -> None:
    run = make_run(Stability(), Poisons(2), Checkpoint(every_n_iterations=1), val_check_interval=100)

    with pytest.raises(Diverged, match="weights critic"):
        run.fit()

    last = torch.load(run.folder / "checkpoints" / "last.ckpt", weights_only=True)
    assert last["global_step"] == 1
    assert all(value.isfinite().all() for value in last["state_dict"].values())


def test_a_healthy_run_is_left_alone(make_run: Any) -> None:
    run = make_run(Stability(), Checkpoint()).fit()

    assert run.trainer.global_step == 4
