"""The posterior kept step by step equals the one made at once."""

import torch

from datamodules.core.sequence_types import SequenceBatch
from modules.active_dynamics.bayesian_last_layer import BayesianLastLayer, regression_batch
from tests.support.dynamics_fixtures import knowledge

VARIANCE = torch.tensor(0.1, dtype=torch.float64)


def seen(steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    return torch.randn(steps, 6, generator=random).double(), torch.randn(steps, 2, generator=random).double()


def test_step_by_step_from_sums_and_made_anew_are_the_same() -> None:
    features, target = seen(50)
    one, anew = BayesianLastLayer(6, 2, 3.0), BayesianLastLayer(6, 2, 3.0)
    for t in range(0, 50, 5):
        one.update_(features[t : t + 5], target[t : t + 5], VARIANCE)

    anew.update_(features[:9] + 1, target[:9], VARIANCE)
    anew.refit_(features, target, VARIANCE)

    torch.testing.assert_close(one.state_dict(), anew.state_dict())
    kept = one.covariance.clone()
    one.recompute_()
    torch.testing.assert_close(one.covariance, kept)


def test_observing_says_how_much_the_determinant_fell() -> None:
    features, target = seen(7)
    posterior = BayesianLastLayer(6, 2, 3.0)
    before = posterior.covariance.logdet()

    gained = posterior.update_(features, target, VARIANCE)

    torch.testing.assert_close(gained, 2 * (before - posterior.covariance.logdet()))


def test_a_regression_takes_features_by_the_trapezoidal_rule() -> None:
    """The mean of both ends of a step, for a target that leaves out what the model's own features say."""
    model, random = knowledge().model, torch.Generator().manual_seed(0)
    latent = torch.rand(4, 3, 2, generator=random)
    contiguous = torch.ones(3, 3, dtype=torch.bool)
    contiguous[1, 2] = False

    regression = regression_batch(model, latent, SequenceBatch(latent, torch.zeros(3, 3, 2), contiguous))

    features = model.dynamics.features(latent).double()
    expected = torch.where(contiguous.unsqueeze(-1), 0.5 * features[:-1] + 0.5 * features[1:], 0).flatten(0, 1)
    torch.testing.assert_close(regression.features, expected)
    assert not regression.target[5].any() and regression.target[4].any()
