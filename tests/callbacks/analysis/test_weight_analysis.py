"""The spectrum of weights: known matrices, every linear layer, only when due, and without effect on the run."""

import math
from typing import Any

import pytest
import torch

from callbacks.analysis.weight_analysis import MEASURES, WeightAnalysis, spectrum
from datamodules.core.errors import ConfigurationError
from tests.support.small_runs import weights_hash


def test_the_spectrum_of_a_known_matrix() -> None:
    values = torch.tensor([50.0, 49.5, 0.4, 0.1])
    left, right = (torch.linalg.qr(torch.randn(size, size))[0] for size in (6, 4))
    weight = left[:, :4] @ values.diag() @ right

    found = dict(zip(MEASURES, spectrum(weight, 0.01).tolist(), strict=True))

    assert found["frobenius_norm"] == pytest.approx(float(values.norm()), rel=1e-4)
    assert found["largest"] == pytest.approx(50, rel=1e-4) and found["mean"] == pytest.approx(25, rel=1e-4)
    assert found["condition_number"] == pytest.approx(500, rel=1e-2)
    assert found["effective_rank"] == 2 and found["collapsed_share"] == 0.5


def test_the_share_below_which_values_are_collapsed_is_a_setting() -> None:
    weight = torch.tensor([1.0, 0.5, 0.05]).diag()
    shares = [float(spectrum(weight, below)[MEASURES.index("collapsed_share")]) for below in (0.01, 0.1, 0.6)]
    assert shares == pytest.approx([0, 1 / 3, 2 / 3])


def test_a_weight_that_is_not_finite_gives_no_number() -> None:
    assert all(map(math.isnan, spectrum(torch.tensor([[1.0, math.inf]]), 0.01).tolist()))


def test_every_linear_layer_is_logged_when_due(make_run: Any) -> None:
    run = make_run(WeightAnalysis(every_n_iterations=3), iterations=4).fit()
    layers = {name for name, each in run.module.named_modules() if isinstance(each, torch.nn.Linear)}
    tags = {tag for tag in run.module.last_logged if tag.startswith("weights/")}
    assert tags == {f"weights/{layer}/{measure}" for layer in layers for measure in MEASURES}
    assert run.module.last_logged["weights/actor.linear/largest"] > 0


@pytest.mark.parametrize(("every", "logs"), [(1, 4), (2, 2), (5, 0)])
def test_the_interval_acts_and_changes_no_weight(make_run: Any, every: int, logs: int) -> None:
    calls = []

    class Counted(WeightAnalysis):
        def measure(self, module: torch.nn.Module) -> dict[str, float]:
            calls.append(1)
            return super().measure(module)

    torch.manual_seed(1)
    watched = make_run(Counted(every), version="watched").fit()
    torch.manual_seed(1)
    plain = make_run(version="plain").fit()

    assert len(calls) == logs and weights_hash(watched.module) == weights_hash(plain.module)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"every_n_iterations": 0}, "every_n_iterations 0; choose at least 1"),
        ({"collapsed_below": 1.0}, "collapsed_below 1.0; choose a number between 0 and 1"),
    ],
)
def test_a_value_out_of_range_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^WeightAnalysis has {said}.$"):
        WeightAnalysis(**settings)
