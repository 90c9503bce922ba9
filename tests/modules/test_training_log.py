"""The training log gives means in two strokes, and loses nothing between them."""

import pytest
import torch

from datamodules.types import Scalars
from modules.training_log import Reading, TrainingLog

EPISODES = ("count", "return", "length")


def episodes(*totals: float) -> Scalars:
    return Scalars(EPISODES, torch.tensor(totals, dtype=torch.float64))


def test_finish_gives_the_means_of_what_was_there_at_begin_with_its_env_steps():
    log = TrainingLog()
    log.update(episodes(2, 10, 40), Scalars(("loss",), torch.tensor([1.0])))
    log.update(episodes(0, 0, 0), Scalars(("loss",), torch.tensor([3.0])))
    log.begin(64, {"train/learning_rate": 0.5})
    log.update(episodes(1, 100, 100), Scalars(("loss",), torch.tensor([9.0])))

    values, env_steps = log.finish()

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
        means.append(log.finish()[0]["rollout/return_mean"])

    assert means == [0.0, 20 / 110, 200 / 110]


def test_nothing_begun_gives_nothing():
    log = TrainingLog()

    assert log.finish() is None


@pytest.mark.gpu
def test_a_reading_holds_the_values_of_when_it_was_made():
    values = torch.ones(3, device="cuda")
    reading = Reading(0, values)
    values.zero_()

    assert reading.values() == [[1.0, 1.0, 1.0]]
