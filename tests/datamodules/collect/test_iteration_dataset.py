"""Short iterations share a Trainer batch; everything still happens at the iteration it is due."""

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import lightning
import pytest
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from callbacks.run_control.checkpoint import RunCheckpoint
from tests.support.small_runs import fitted, snake_data, weights_hash


class Batches(Callback):
    """Notes the iterations done at the start, after each batch, and at each evaluation."""

    acts_per_iteration = False

    def __init__(self) -> None:
        self.ends, self.evaluated, self.last = [0], [], []

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        self.ends.append(trainer.global_step)
        self.last.append(trainer.is_last_batch)
        assert trainer.fit_loop.epoch_loop.batch_progress.current.ready == trainer.global_step

    def on_validation_start(self, trainer: lightning.Trainer, *_: Any) -> None:
        self.evaluated.append(trainer.global_step)


def test_a_batch_is_cut_at_logs_evaluations_and_the_end(tmp_path: Path):
    batches = Batches()

    model = fitted(tmp_path, snake_data(iterations_per_batch=3), batches, log_every_n_steps=4, val_check_interval=6)

    assert batches.ends == [0, 3, 4, 6, 8, 10]
    assert batches.evaluated == [6]
    assert batches.last == [False] * 4 + [True]
    assert model.global_step == 10


class Saved(Batches):
    """Notes the iteration of every checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: list[int] = []

    def on_save_checkpoint(self, trainer: lightning.Trainer, *_: Any) -> None:
        self.saved.append(trainer.global_step)


@pytest.mark.parametrize(
    "save",
    [partial(RunCheckpoint, every_n_iterations=4), partial(ModelCheckpoint, every_n_train_steps=4, save_top_k=-1)],
    ids=["RunCheckpoint", "ModelCheckpoint"],
)
def test_a_batch_is_cut_where_a_checkpoint_is_due(tmp_path: Path, save: Any):
    saved = Saved()

    fitted(tmp_path, snake_data(iterations_per_batch=100), saved, save(), log_every_n_steps=100)

    assert saved.ends == [0, 4, 8, 10]
    assert {4, 8} <= set(saved.saved) <= {4, 8, 10}


def test_iterations_per_batch_change_no_weight(tmp_path: Path):
    runs = [fitted(tmp_path, snake_data(iterations_per_batch=count), log_every_n_steps=4) for count in (1, 100)]

    assert weights_hash(runs[0]) == weights_hash(runs[1])


def test_by_default_a_batch_holds_one_iteration(tmp_path: Path):
    batches = Batches()

    fitted(tmp_path, snake_data(), batches)

    assert batches.ends == list(range(11))


@pytest.mark.parametrize("limit", [{"max_steps": 7}, {"limit_train_batches": 7}], ids=str)
def test_limits_count_iterations(tmp_path: Path, limit: dict[str, int]):
    batches = Batches()

    fitted(tmp_path, snake_data(iterations_per_batch=100), batches, log_every_n_steps=4, **limit)

    assert batches.ends[-2:] == [4, 7]


class Saves(Callback):
    """Saves when four iterations are done, and ends the run."""

    acts_per_iteration = False

    def __init__(self, path: Path):
        self.path = path

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        if trainer.global_step == 4:
            trainer.save_checkpoint(self.path, weights_only=False)
            trainer.should_stop = True


def test_a_resumed_run_of_several_iterations_a_batch_ends_where_the_whole_one_does(tmp_path: Path):
    path, rest = tmp_path / "four.ckpt", Batches()
    data = partial(snake_data, iterations_per_batch=100)
    whole = fitted(tmp_path, data(), log_every_n_steps=2)
    fitted(tmp_path, data(), Saves(path), log_every_n_steps=2)

    resumed = fitted(tmp_path, data(), rest, ckpt_path=path, log_every_n_steps=2)

    assert weights_hash(resumed) == weights_hash(whole)
    assert all(after > before for before, after in pairwise(rest.ends))
    assert resumed.global_step == 10
