"""The training log gives means in two strokes, and loses nothing between them."""

from pathlib import Path

import pytest
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from datamodules.core.types import MetricVector
from modules.base.episode_metrics import MeanMetrics
from modules.base.metric_logger import AsyncHostCopy, MetricLogger
from tests.support.small_runs import fitted, snake_data

EPISODES = ("count", "return", "length")


def episodes(*totals: float) -> MetricVector:
    return MetricVector(EPISODES, torch.tensor(totals, dtype=torch.float64))


def test_finish_gives_the_means_of_what_was_there_at_begin_with_its_env_steps():
    log = MetricLogger()
    log.update(episodes(2, 10, 40), MetricVector(("loss",), torch.tensor([1.0])))
    log.update(episodes(0, 0, 0), MetricVector(("loss",), torch.tensor([3.0])))
    log.start_transfer(64, {"train/learning_rate": 0.5})
    log.update(episodes(1, 100, 100), MetricVector(("loss",), torch.tensor([9.0])))

    ((values, env_steps),) = log.completed(wait=True)

    assert env_steps == 64
    assert values == {
        "train/loss": 2.0,
        "rollout/return_mean": 5.0,
        "rollout/length_mean": 20.0,
        "train/learning_rate": 0.5,
    }


def test_few_new_episodes_are_averaged_with_whole_groups_until_there_are_a_hundred():
    log = MetricLogger()
    means = []
    for totals in ((90, 0, 90), (20, 20, 20), (90, 180, 90)):
        log.update(episodes(*totals), MetricVector((), torch.zeros(0)))
        log.start_transfer(0, {"train/learning_rate": 0.1})
        means += [values["rollout/return_mean"] for values, _ in log.completed(wait=True)]

    assert means == [0.0, 20 / 110, 200 / 110]


def test_nothing_begun_gives_nothing():
    log = MetricLogger()

    assert not list(log.completed(wait=True))


def test_the_event_file_counts_env_steps(tmp_path: Path):
    logger = TensorBoardLogger(tmp_path)
    fitted(tmp_path, snake_data(), logger=logger, log_every_n_steps=2)

    events = EventAccumulator(str(logger.log_dir)).Reload()

    for tag in ("rollout/length_mean", "train/learning_rate"):
        assert [point.step for point in events.Scalars(tag)] == [2 * 128 * (k + 1) for k in range(5)]


@pytest.mark.gpu
def test_what_is_under_way_is_given_later_and_in_order():
    log, matrix = MetricLogger(), torch.ones(8192, 8192, device="cuda")
    for step in (1, 2):
        for _ in range(20):
            matrix = (matrix @ matrix).clamp(max=1)
        log.update(
            MetricVector(EPISODES, torch.zeros(3, dtype=torch.float64, device="cuda")),
            MetricVector(("loss",), matrix[0, :1]),
        )
        log.start_transfer(step, {})

    early = [steps for _, steps in log.completed(wait=False)]
    late = [steps for _, steps in log.completed(wait=True)]

    assert early == []
    assert late == [1, 2]


@pytest.mark.gpu
def test_a_reading_holds_the_values_of_when_it_was_made():
    values = torch.ones(3, device="cuda")
    reading = AsyncHostCopy(0, values)
    values.zero_()

    assert reading.values() == [[1.0, 1.0, 1.0]]


@pytest.mark.parametrize("names", [("policy",), ("value", "entropy")])
def test_means_resumed_with_other_names_begin_anew(names: tuple[str, ...]) -> None:
    means, resumed = MeanMetrics(), MeanMetrics()
    means.update(MetricVector(("policy", "value"), torch.tensor([1.0, 2.0])))
    resumed.import_state(means.export_state(), torch.device("cpu"))

    resumed.update(MetricVector(names, torch.full((len(names),), 5.0)))

    assert resumed.names == list(names) and resumed.pop().tolist() == [5.0] * len(names)
