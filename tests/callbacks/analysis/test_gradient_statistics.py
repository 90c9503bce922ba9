"""Statistics of gradients: those of the last step, of flat and of separate parameters, only when due."""

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch import Callback

from callbacks.analysis.gradient_statistics import GradientStatistics, statistics
from datamodules.core.errors import ConfigurationError
from modules.ppo.ppo import PPO
from tests.support.small_runs import cartpole_data, small_ppo, trainer, weights_hash


class Points(Callback):
    """Keeps the gradients' values by iteration, and whether they equal those of the parameters."""

    def __init__(self) -> None:
        self.found: dict[int, list[float]] = {}

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        names = ("gradients/mean", "gradients/variance", "gradients/norm")
        if names[0] in pl_module.last_logged:
            values = [pl_module.last_logged.pop(name) for name in names]
            whole = torch.cat([gradient.flatten().double() for gradient in pl_module.optim.gradients()])
            expected = [float(x) for x in (whole.mean(), whole.var(correction=0), whole.norm())]
            assert values == pytest.approx(expected, rel=1e-6, abs=1e-12)
            assert whole.numel() == sum(each.numel() for each in pl_module.parameters())
            self.found[trainer.global_step] = values


def run(root: Path, *callbacks: Callback, **changes: Any) -> PPO:
    lightning.seed_everything(1, verbose=False)
    data = cartpole_data()
    model = small_ppo(data, max_grad_norm=0.01, **changes)
    trainer(root, *callbacks).fit(model, datamodule=data)
    return model


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.Rprop], ids=["flat", "separate"])
def test_values_are_those_of_the_last_step_when_due(tmp_path: Path, optimizer: Any) -> None:
    points = Points()

    run(tmp_path, GradientStatistics(every_n_iterations=4), points, optimizer=optimizer)

    assert set(points.found) == {4, 8}
    assert all(0 < norm <= 0.01 * (1 + 1e-5) for _, _, norm in points.found.values())


def test_it_changes_no_weight(tmp_path: Path) -> None:
    assert weights_hash(run(tmp_path, GradientStatistics(1))) == weights_hash(run(tmp_path))


def test_the_definitions() -> None:
    mean, variance, norm = statistics([torch.tensor([1.0, 2.0]), torch.tensor([[3.0]])]).tolist()
    assert (mean, variance, norm) == pytest.approx((2, 2 / 3, 14**0.5))


def test_an_interval_below_one_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="every_n_iterations is 0; it must be at least 1"):
        GradientStatistics(0)
