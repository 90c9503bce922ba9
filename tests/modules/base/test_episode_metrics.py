"""Evaluation results against their definitions."""

import torch
from pytest import approx

from datamodules.core.types import EpisodeBatch
from modules.base.episode_metrics import EvaluationStats


def test_the_interval_of_a_mean_shrinks_with_the_root_of_the_episodes() -> None:
    returns = torch.tensor([1.0, 2.0, 4.0, 9.0] * 4, dtype=torch.float64)
    metric = EvaluationStats()
    metric.update(EpisodeBatch(returns, torch.full((16,), 5), {}, []))

    found = metric.compute()

    deviation = (sum((value - 4.0) ** 2 for value in returns.tolist()) / 15) ** 0.5
    assert found["return_mean"] == 4 and found["return_std"] == approx(deviation)
    assert found["return_interval"] == approx(1.96 * deviation / 4)
