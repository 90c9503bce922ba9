"""Dynamics: a step is what the equation says, its derivative is autograd's, its variance follows its parameter."""

import pytest
import torch
from torch import Tensor, nn

from modules.networks.latent import RBF, Ensemble, LinearDynamics, MLPDynamics


def made(kind: type, **changes: object) -> nn.Module:
    torch.manual_seed(0)
    model = kind(**changes).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("weight"):
                parameter.normal_()
    return model


every = pytest.mark.parametrize("kind", [RBF, LinearDynamics, MLPDynamics, Ensemble])


def states(rows: int = 6) -> Tensor:
    return torch.randn(3, rows, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@every
@pytest.mark.parametrize("residual", [True, False])
def test_a_step_is_what_the_equation_says(kind: type, residual: bool) -> None:
    model, z, u = made(kind, residual=residual, dt=0.1), states(), states()
    expected = z + 0.1 * (model.field(z) + u) if residual else model.field(z) + 0.1 * u

    torch.testing.assert_close(model.step(z, u), expected)
    assert model.gain == (0.1 if residual else 1.0)


@every
@pytest.mark.parametrize("residual", [True, False])
def test_the_jacobian_is_the_derivative_of_a_step(kind: type, residual: bool) -> None:
    model, z = made(kind, residual=residual), states()
    u = torch.zeros_like(z)
    right = torch.stack(
        [torch.autograd.functional.jacobian(lambda x: model.step(x, u[0, 0]), row) for row in z.view(-1, 2)]
    )

    torch.testing.assert_close(model.jacobian(z, u), right.view(3, 6, 2, 2))


@every
def test_the_field_is_linear_in_the_features(kind: type) -> None:
    model, z = made(kind), states()
    torch.testing.assert_close(model.features(z) @ model.weight, model.field(z))


@every
def test_the_variance_follows_its_parameter_and_can_be_differentiated_twice(kind: type) -> None:
    model = made(kind, dt=0.1, noise=0.5, learn_noise=True)
    before = model.variance
    torch.testing.assert_close(before, torch.full((2,), 0.1 * 0.25, dtype=torch.float64))
    for _ in range(2):
        model.variance.sum().backward()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("raw_noise"):
                parameter.add_(1.0)

    assert (model.variance > before).all()


def test_bumps_sit_on_a_grid_that_reaches_beyond_the_box() -> None:
    model = RBF(low=(-2.0, -1.0), high=(2.0, 1.0), centres=5)
    assert model.centres.shape == (25, 2)
    torch.testing.assert_close(model.centres.amax(0), torch.tensor([2.3, 1.15]))
    at_centre = model.features(model.centres[7])
    assert at_centre[7] == pytest.approx(1.0, abs=1e-5) and at_centre[-1] == 1


def test_bumps_are_gaussians_of_the_distance_to_their_centres() -> None:
    model, z = made(RBF, low=(-2.0, -1.0, 0.0), high=(2.0, 1.0, 1.0), centres=4), torch.randn(5, 3).double()
    square = ((z.unsqueeze(-2) - model.centres) * model.scale).square().sum(-1)

    torch.testing.assert_close(model.features(z)[..., :-1], torch.exp(-0.5 * square), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [LinearDynamics, MLPDynamics, Ensemble])
def test_noise_that_is_learned_begins_with_a_variance_of_a_hundredth_a_step(kind: type) -> None:
    assert (kind().variance >= 0.01).all()


def test_features_of_an_ensemble_change_with_every_member() -> None:
    model, z = made(Ensemble, count=3, hidden=(4,)), states()
    before = model.features(z)
    for member in model.models:
        member.body[0][0].weight.data.add_(1.0)

    changed = (model.features(z) != before).view(-1, 3, 5).any(-1).all(0)
    assert before.shape[-1] == 15 and changed.all()


def test_members_of_an_ensemble_disagree_and_their_mean_is_the_step() -> None:
    model, z = made(Ensemble, count=3), states()
    members = model.members(z, z)
    assert members.shape == (3, *z.shape) and members.std(0).min() > 0
    torch.testing.assert_close(model.step(z, z), members.mean(0))


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [(RBF, {"low": (1.0, 1.0), "high": (0.0, 2.0)}), (RBF, {"centres": 1}), (MLPDynamics, {"dt": 0.0}),
     (LinearDynamics, {"noise": 0.0}), (Ensemble, {"count": 1})],
)  # fmt: skip
def test_numbers_out_of_range_are_refused(kind: type, wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must be"):
        kind(**wrong)
