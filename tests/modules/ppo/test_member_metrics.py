"""Metrics of the members of a population."""

import pytest
import torch

from datamodules.core.types import EpisodeBatch
from modules.ppo.member_metrics import MemberEvaluations, means_over_members, split_by_member

VALUES = {"eval/return_mean/seed_1": 2.0, "eval/return_mean/seed_12": 6.0, "train/learning_rate": 0.5}


def batch(episodes: int) -> EpisodeBatch:
    returns = torch.arange(float(episodes), dtype=torch.float64)
    return EpisodeBatch(returns, torch.ones(episodes), {"food": 10 * returns}, [])


def test_values_of_a_member_have_the_tags_of_a_single_run() -> None:
    members = split_by_member(VALUES, [1, 12])

    assert members[1] == {"eval/return_mean": 2.0, "train/learning_rate": 0.5}
    assert members[12] == {"eval/return_mean": 6.0, "train/learning_rate": 0.5}
    assert means_over_members(members) == {"eval/return_mean": 4.0, "train/learning_rate": 0.5}


def test_each_member_has_its_own_episodes() -> None:
    evaluations = MemberEvaluations([7, 3])
    evaluations.update(batch(4))

    values = evaluations.compute()

    assert evaluations.is_complete
    assert (values["return_mean/seed_7"], values["return_mean/seed_3"]) == (0.5, 2.5)
    assert values["food_max/seed_3"] == 30 and values["episodes/seed_7"] == 2


def test_an_interrupted_evaluation_has_no_values_and_the_next_one_begins_anew() -> None:
    evaluations = MemberEvaluations([7, 3])
    evaluations.update(batch(0))
    assert evaluations.compute() == {} and not evaluations.is_complete

    evaluations.reset()
    evaluations.update(batch(2))

    assert evaluations.compute()["return_mean/seed_3"] == pytest.approx(1.0) and evaluations.is_complete
