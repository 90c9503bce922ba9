"""Encoders of actions: what they push, and that no action pushes nothing."""

import pytest
import torch
from torch import Tensor, nn

from modules.networks.latent import (
    RBF,
    AxisActions,
    Ensemble,
    IdentityActions,
    LinearActions,
    LinearDynamics,
    MLPActions,
    MLPDynamics,
    StateDependent,
)

KINDS = {
    "pushed": lambda: AxisActions([1, 2], 3),
    "linear": lambda: LinearActions(2, 3),
    "mlp": lambda: MLPActions(2, 3),
}
every = pytest.mark.parametrize("kind", KINDS)


def made(kind: str) -> nn.Module:
    torch.manual_seed(0)
    return KINDS[kind]().double()


def actions() -> Tensor:
    return torch.randn(4, 6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@every
def test_every_action_is_encoded_by_itself(kind: str) -> None:
    model, action = made(kind), actions()
    before = action.clone()

    found = model(action)

    assert found.shape == (4, 6, 3)
    torch.testing.assert_close(found[2, 3], model(action[2, 3]))
    assert torch.equal(action, before)


@every
def test_no_action_pushes_nothing(kind: str) -> None:
    pushed = made(kind)(torch.zeros(5, 2, dtype=torch.float64))

    torch.testing.assert_close(pushed, torch.zeros_like(pushed), rtol=0, atol=1e-14)


@pytest.mark.parametrize(("kind", "proportional"), [("pushed", True), ("linear", True), ("mlp", False)])
def test_only_a_network_is_out_of_proportion(kind: str, proportional: bool) -> None:
    model, action = made(kind), actions()

    assert torch.allclose(model(3 * action), 3 * model(action)) == proportional


def test_pushed_axes_take_the_action_as_it_is() -> None:
    assert AxisActions([2, 0], 3)(torch.tensor([1.0, 5.0])).tolist() == [5.0, 0.0, 1.0]
    assert IdentityActions()(torch.tensor([1.0, 5.0])).tolist() == [1.0, 5.0]


@pytest.mark.parametrize("dynamics", [RBF, LinearDynamics, MLPDynamics, Ensemble])
@pytest.mark.parametrize("residual", [True, False])
def test_what_an_action_does_can_depend_on_where_it_is_done(dynamics: type, residual: bool) -> None:
    torch.manual_seed(0)
    free = dynamics(residual=residual, dt=0.1).double()
    model, z, u = StateDependent(free, 3).double(), torch.randn(5, 2).double(), torch.randn(5, 3).double()
    moved = model.step(z, u) - free.step(z, torch.zeros_like(z))

    for row in range(5):
        matrix = model.body(z[row]).view(2, 3)
        torch.testing.assert_close(moved[row], 0.1 * matrix @ u[row])
    assert (model.input(z, u) - model.input(z + 1, u)).abs().min() > 0
    torch.testing.assert_close(model.members(z, u).mean(0), model.step(z, u))


@pytest.mark.parametrize("dynamics", [RBF, MLPDynamics, Ensemble])
@pytest.mark.parametrize("residual", [True, False])
def test_the_jacobian_knows_that_what_an_action_does_changes_with_the_state(dynamics: type, residual: bool) -> None:
    torch.manual_seed(0)
    model = StateDependent(dynamics(residual=residual, dt=0.1), 3).double()
    z, u, small = torch.randn(2, 5, 2).double(), torch.randn(2, 5, 3).double(), 1e-5

    for column, axis in enumerate(small * torch.eye(2).double()):
        difference = (model.step(z + axis, u) - model.step(z - axis, u)) / (2 * small)
        torch.testing.assert_close(model.jacobian(z, u)[..., column], difference, rtol=1e-6, atol=1e-8)


def test_state_dependent_inputs_leave_the_rest_of_the_dynamics_alone() -> None:
    free = RBF()
    nn.init.normal_(free.weight)
    model, z = StateDependent(free, 3), torch.randn(5, 2)

    assert (model.dimensions, model.dt, model.gain, model.residual) == (2, free.dt, free.gain, True)
    for name in ("field", "features"):
        assert torch.equal(getattr(model, name)(z), getattr(free, name)(z))
    assert torch.equal(model.variance, free.variance)


@pytest.mark.parametrize(
    "wrong", [lambda: LinearActions(0, 2), lambda: MLPActions(2, 0), lambda: StateDependent(RBF(), 0)]
)
def test_numbers_out_of_range_are_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        wrong()


@pytest.mark.parametrize("axes", [[], [3], [-1]])
def test_axes_that_are_not_there_are_refused(axes: list[int]) -> None:
    with pytest.raises(ValueError, match="has axes 0 to 2"):
        AxisActions(axes, 3)
