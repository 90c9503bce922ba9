"""R2 and alignment on fields where the answer is known."""

import torch

from modules.functional.dynamics.prediction_metrics import aligned_field, apply_affine, fit_affine, r2_score, velocity
from modules.networks.latent import LinearDynamics


def test_determination_is_one_for_the_truth_and_zero_for_the_mean() -> None:
    true = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 5.0, 0.1])

    assert r2_score(true, true) == 1
    torch.testing.assert_close(r2_score(true.mean(0).expand(20, 3), true), torch.tensor(0.0), atol=1e-6, rtol=0)


def test_rows_that_are_not_known_do_not_count() -> None:
    true, known = torch.arange(12.0).view(2, 3, 2), torch.tensor([[True, True, False], [True, False, True]])
    wrong = torch.where(known.unsqueeze(-1), true + 0.5, 1e6)

    torch.testing.assert_close(r2_score(wrong, true, known), r2_score(true[known] + 0.5, true[known]))


def test_a_field_in_other_coordinates_is_the_same_field() -> None:
    random = torch.Generator().manual_seed(1)
    matrix, offset = torch.randn(2, 2, generator=random).double(), torch.randn(2, generator=random).double()
    state = torch.randn(50, 2, generator=random).double()
    latent = torch.linalg.solve(matrix, state - offset, left=False)

    def true(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x[..., 1], x[..., 0] ** 2], dim=-1)

    def learned(z: torch.Tensor) -> torch.Tensor:
        return torch.linalg.solve(matrix, true(z @ matrix + offset), left=False)

    found = fit_affine(latent, state)
    torch.testing.assert_close(found, (matrix, offset))
    torch.testing.assert_close(apply_affine(latent, found), state)
    torch.testing.assert_close(aligned_field(learned, state, found), true(state))
    assert torch.equal(aligned_field(learned, state, None), learned(state))


def test_the_velocity_is_that_of_a_step_whatever_f_gives() -> None:
    z = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    matrix = torch.tensor([[0.0, 1.0], [-1.0, -0.3]])
    slow, direct = (LinearDynamics(2, dt=0.1, residual=residual) for residual in (True, False))
    with torch.no_grad():
        slow.weight[:2] = matrix
        direct.weight[:2] = torch.eye(2) + 0.1 * matrix

        for dynamics in (slow, direct):
            torch.testing.assert_close(velocity(dynamics, z), z @ matrix, rtol=1e-4, atol=1e-5)
