"""Short iterations share a Trainer batch; everything still happens at the iteration it is due."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import lightning
import pytest
from lightning.pytorch.callbacks import Callback

from datamodules import iterations
from tests.training import fitted, snake_data, weights_hash


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches as long as they may be."""
    monkeypatch.setattr(iterations, "BATCH_SECONDS", 1e9)


class Batches(Callback):
    """Notes the iterations done at the start, after each batch, and at each evaluation."""

    def __init__(self) -> None:
        self.ends, self.evaluated, self.last = [0], [], []

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        self.ends.append(trainer.global_step)
        self.last.append(trainer.is_last_batch)
        assert trainer.fit_loop.epoch_loop.batch_progress.current.ready == trainer.global_step

    def on_validation_start(self, trainer: lightning.Trainer, *_: Any) -> None:
        self.evaluated.append(trainer.global_step)


def test_a_batch_holds_many_iterations_once_they_are_known_to_be_short(tmp_path: Path, packed: None):
    batches = Batches()

    model = fitted(tmp_path, snake_data(), batches, log_every_n_steps=4, val_check_interval=6)

    assert batches.ends == [0, 1, 2, 3, 4, 6, 8, 10]
    assert batches.evaluated == [6]
    assert batches.last == [False] * 6 + [True]
    assert model.global_step == 10


def test_packing_changes_no_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    hashes = []
    for seconds in (0.0, 1e9):
        monkeypatch.setattr(iterations, "BATCH_SECONDS", seconds)
        hashes.append(weights_hash(fitted(tmp_path, snake_data(), log_every_n_steps=4)))

    assert hashes[0] == hashes[1]


def test_an_iteration_as_long_as_a_batch_should_last_has_one_of_its_own(tmp_path: Path):
    batches = Batches()

    fitted(tmp_path, snake_data(), batches)

    assert batches.ends == list(range(11))


@pytest.mark.parametrize("limit", [{"max_steps": 7}, {"limit_train_batches": 7}], ids=str)
def test_limits_count_iterations(tmp_path: Path, packed: None, limit: dict[str, int]):
    batches = Batches()

    fitted(tmp_path, snake_data(), batches, log_every_n_steps=4, **limit)

    assert batches.ends[-2:] == [4, 7]


class Saves(Callback):
    """Saves when four iterations are done, and ends the run."""

    def __init__(self, path: Path):
        self.path = path

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        if trainer.global_step == 4:
            trainer.save_checkpoint(self.path, weights_only=False)
            trainer.should_stop = True


def test_a_resumed_run_of_packed_iterations_ends_where_the_whole_one_does(tmp_path: Path, packed: None):
    path, rest = tmp_path / "four.ckpt", Batches()
    whole = fitted(tmp_path, snake_data(), log_every_n_steps=2)
    fitted(tmp_path, snake_data(), Saves(path), log_every_n_steps=2)

    resumed = fitted(tmp_path, snake_data(), rest, ckpt_path=path, log_every_n_steps=2)

    assert weights_hash(resumed) == weights_hash(whole)
    assert all(after > before for before, after in pairwise(rest.ends))
    assert resumed.global_step == 10
