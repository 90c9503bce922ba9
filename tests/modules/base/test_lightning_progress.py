"""Lightning's counters count iterations, whatever a batch holds."""

from pathlib import Path
from typing import Any

import lightning
import pytest
from lightning.pytorch.callbacks import Callback, EMAWeightAveraging, LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger

from callbacks.performance.progress_bar import TrainingProgress
from datamodules.core.errors import ConfigurationError
from modules.ppo.ppo import PPO
from tests.support.small_runs import cartpole_data, fitted, small_ppo, snake_data, trainer, weights_hash


class Counters(Callback):
    """Notes Lightning's private counters after the last batch."""

    acts_per_iteration = False

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        loop, fetcher = trainer.fit_loop.epoch_loop, trainer.fit_loop._data_fetcher
        current = loop.batch_progress.current
        self.seen = {name: getattr(current, name) for name in ("ready", "started", "processed", "completed")}
        self.seen |= {"stepped": loop._batches_that_stepped, "fetched": fetcher.fetched, "length": fetcher.length}
        self.seen |= {"max_batches": trainer.fit_loop.max_batches, "last": loop.batch_progress.is_last_batch}


@pytest.mark.parametrize("count", [1, 4])
def test_every_counter_that_lightning_keeps_is_advanced(tmp_path: Path, count: int) -> None:
    counters = Counters()

    fitted(tmp_path, snake_data(iterations_per_batch=count), counters)

    before_the_end = {"completed": 9, "stepped": 9}  # Lightning advances these two after the hook
    assert counters.seen == before_the_end | {
        "ready": 10, "started": 10, "processed": 10, "fetched": 10, "length": 10, "max_batches": 10, "last": True,
    }  # fmt: skip


class Logs(PPO):
    """An algorithm that logs a value of its own through Lightning in every iteration."""

    def after_update(self, collected: Any) -> None:
        super().after_update(collected)
        self.log("mine", float(self.global_step))


@pytest.mark.parametrize("count", [1, 4])
def test_what_an_algorithm_logs_itself_has_a_row_at_every_log(tmp_path: Path, count: int) -> None:
    data, logger = snake_data(iterations_per_batch=count), CSVLogger(tmp_path, name="", version="")

    trainer(tmp_path, logger=logger).fit(Logs(data.spaces, num_minibatches=4), datamodule=data)

    header, *rows = [line.split(",") for line in (tmp_path / "metrics.csv").read_text().splitlines()]
    found = [row[header.index("mine")] for row in rows]
    assert [float(value) for value in found if value] == [2.0, 5.0, 8.0]


def test_the_learning_rate_monitor_reads_every_optimizer(tmp_path: Path) -> None:
    monitor = LearningRateMonitor()

    fitted(tmp_path, snake_data(), monitor, logger=CSVLogger(tmp_path))

    assert len(monitor.lrs) == 2


def test_an_average_of_weights_is_updated_after_every_iteration(tmp_path: Path) -> None:
    average = EMAWeightAveraging(decay=0.5)

    fitted(tmp_path, snake_data(), average)

    assert average._average_model is not None and average._average_model.n_averaged == 10


class PerBatch(Callback):
    """Acts on every batch and declares nothing."""

    def on_train_batch_start(self, *_: Any) -> None:
        """Do something."""


class Louder(TrainingProgress):
    """Overrides what its parent declared to be indifferent."""

    def on_train_batch_end(self, *what: Any) -> None:
        super().on_train_batch_end(*what)


class Hooked(PPO):
    """Overrides a hook that Lightning calls once a batch."""

    def on_train_batch_end(self, *_: Any) -> None:
        """Do something."""


@pytest.mark.parametrize(
    "callback",
    [PerBatch(), Louder(), LearningRateMonitor(), EMAWeightAveraging()],
    ids=lambda callback: type(callback).__name__,
)
def test_several_iterations_a_batch_are_refused_with_a_callback_that_acts_per_batch(
    tmp_path: Path, callback: Callback
) -> None:
    shown = {"enable_progress_bar": isinstance(callback, TrainingProgress)}
    with pytest.raises(
        ConfigurationError, match=rf"iterations_per_batch is 2, but {type(callback).__name__}\.on_train_batch"
    ):
        fitted(tmp_path, snake_data(iterations_per_batch=2), callback, logger=CSVLogger(tmp_path), **shown)


def test_several_iterations_a_batch_are_refused_with_a_hook_of_the_algorithm(tmp_path: Path) -> None:
    data = snake_data(iterations_per_batch=2)
    with pytest.raises(ConfigurationError, match=r"Hooked\.on_train_batch_end acts on every batch"):
        trainer(tmp_path).fit(Hooked(data.spaces, num_minibatches=4), datamodule=data)


@pytest.mark.parametrize("epochs", [2, -1])
def test_more_than_one_epoch_is_refused(tmp_path: Path, epochs: int) -> None:
    with pytest.raises(ConfigurationError, match=rf"trainer.max_epochs is {epochs}, but a run is one epoch"):
        fitted(tmp_path, snake_data(), max_epochs=epochs)


def test_an_evaluation_in_every_epoch_is_one_every_so_many_iterations(tmp_path: Path) -> None:
    model = fitted(tmp_path, snake_data(), check_val_every_n_epoch=1, val_check_interval=100)

    assert model.global_step == 10


def test_a_run_resumed_with_shorter_rollouts_ends_at_the_env_steps_asked_for(tmp_path: Path) -> None:
    whole, path = snake_data(), tmp_path / "part.ckpt"
    part = trainer(tmp_path, max_steps=5)
    part.fit(small_ppo(whole), datamodule=whole)
    part.save_checkpoint(path)

    resumed = fitted(tmp_path, snake_data(rollout_length=4), ckpt_path=path)

    assert (resumed.env_steps, resumed.global_step, resumed.progress) == (1280, 15, 1.0)


def test_next_step_environments_end_at_the_env_steps_asked_for_with_a_policy_lag_too(tmp_path: Path) -> None:
    runs = []
    for count in (1, 50):
        data = cartpole_data(backend="vector", policy_lag=1, iterations_per_batch=count)
        runs.append(fitted(tmp_path, data))

    assert all(640 <= run.env_steps < 704 for run in runs)
    assert weights_hash(runs[0]) == weights_hash(runs[1])
