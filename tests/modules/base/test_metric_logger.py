"""The training log gives means in two strokes, and loses nothing between them."""

from pathlib import Path

import pytest
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from datamodules.core.types import Scalars
from modules.base.episode_metrics import RunningMeans
from modules.base.metric_logger import Reading, TrainingLog
from tests.support.small_runs import fitted, snake_data

EPISODES = ("count", "return", "length")


def episodes(*totals: float) -> Scalars:
    return Scalars(EPISODES, torch.tensor(totals, dtype=torch.float64))


def test_finish_gives_the_means_of_what_was_there_at_begin_with_its_env_steps():
    log = TrainingLog()
    log.update(episodes(2, 10, 40), Scalars(("loss",), torch.tensor([1.0])))
    log.update(episodes(0, 0, 0), Scalars(("loss",), torch.tensor([3.0])))
    log.begin(64, {"train/learning_rate": 0.5})
    log.update(episodes(1, 100, 100), Scalars(("loss",), torch.tensor([9.0])))

    ((values, env_steps),) = log.finished(wait=True)

    assert env_steps == 64
    assert values == {
        "train/loss": 2.0,
        "rollout/return_mean": 5.0,
        "rollout/length_mean": 20.0,
        "train/learning_rate": 0.5,
    }


def test_few_new_episodes_are_averaged_with_whole_groups_until_there_are_a_hundred():
    log = TrainingLog()
    means = []
    for totals in ((90, 0, 90), (20, 20, 20), (90, 180, 90)):
        log.update(episodes(*totals), Scalars((), torch.zeros(0)))
        log.begin(0, {"train/learning_rate": 0.1})
        means += [values["rollout/return_mean"] for values, _ in log.finished(wait=True)]

    assert means == [0.0, 20 / 110, 200 / 110]


def test_nothing_begun_gives_nothing():
    log = TrainingLog()

    assert not list(log.finished(wait=True))


def test_the_event_file_counts_env_steps(tmp_path: Path):
    logger = TensorBoardLogger(tmp_path)
    fitted(tmp_path, snake_data(), logger=logger, log_every_n_steps=2)

    events = EventAccumulator(str(logger.log_dir)).Reload()

    for tag in ("rollout/length_mean", "train/learning_rate"):
        assert [point.step for point in events.Scalars(tag)] == [2 * 128 * (k + 1) for k in range(5)]


@pytest.mark.gpu
def test_what_is_under_way_is_given_later_and_in_order():
    log, matrix = TrainingLog(), torch.ones(8192, 8192, device="cuda")
    for step in (1, 2):
        for _ in range(20):
            matrix = (matrix @ matrix).clamp(max=1)
        log.update(
            Scalars(EPISODES, torch.zeros(3, dtype=torch.float64, device="cuda")), Scalars(("loss",), matrix[0, :1])
        )
        log.begin(step, {})

    early = [steps for _, steps in log.finished(wait=False)]
    late = [steps for _, steps in log.finished(wait=True)]

    assert early == []
    assert late == [1, 2]


@pytest.mark.gpu
def test_a_reading_holds_the_values_of_when_it_was_made():
    values = torch.ones(3, device="cuda")
    reading = Reading(0, values)
    values.zero_()

    assert reading.values() == [[1.0, 1.0, 1.0]]


@pytest.mark.parametrize("names", [("policy",), ("value", "entropy")])
def test_means_resumed_with_other_names_begin_anew(names: tuple[str, ...]) -> None:
    means, resumed = RunningMeans(), RunningMeans()
    means.update(Scalars(("policy", "value"), torch.tensor([1.0, 2.0])))
    resumed.remember(means.remembered(), torch.device("cpu"))

    resumed.update(Scalars(names, torch.full((len(names),), 5.0)))

    assert resumed.names == list(names) and resumed.take().tolist() == [5.0] * len(names)
