"""Contrastive learning: offsets never cross a boundary and have their distribution, and the loss is the definition."""

import math

import pytest
import torch

from modules.functional.contrastive import info_nce, steps_before_boundary, truncated_geometric


def test_steps_before_a_boundary_or_the_end_are_counted() -> None:
    boundary = torch.tensor([[1, 0], [0, 0], [0, 1], [1, 1], [0, 0]], dtype=torch.bool)

    later = steps_before_boundary(boundary)

    assert later.t().tolist() == [[2, 1, 0, 1, 0], [1, 0, 0, 1, 0]]


@pytest.mark.parametrize("longest", [1, 3, 50])
def test_offsets_are_geometric_within_their_bound(longest: int) -> None:
    gamma, uniform = 0.8, (torch.arange(100_000) + 0.5) / 100_000

    offset = truncated_geometric(uniform, torch.full_like(uniform, longest, dtype=torch.int64), gamma=gamma)

    expected = [(1 - gamma) * gamma ** (d - 1) / (1 - gamma**longest) for d in range(1, longest + 1)]
    share = torch.bincount(offset, minlength=longest + 1)[1:].double() / len(uniform)
    torch.testing.assert_close(share, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-4)


def test_offsets_stay_within_their_bound_at_the_ends_of_the_uniforms() -> None:
    ends = torch.tensor([0.0, 1 - 2**-24]).repeat_interleave(4)
    longest = torch.tensor([0, 1, 7, 1000]).repeat(2)

    offset = truncated_geometric(ends, longest, gamma=0.99)

    assert offset[:4].tolist() == [1, 1, 1, 1] and bool((offset <= longest.clamp(min=1)).all())


def test_the_loss_is_the_definition_written_out() -> None:
    anchor, positive, negative = torch.randn(6, 5), torch.randn(6, 5), torch.randn(6, 4, 5)
    excluded = torch.rand(6, 4) < 0.3

    found = info_nce(anchor, positive, negative, excluded, temperature=0.5)

    for row in range(6):
        cosine = torch.nn.functional.cosine_similarity
        near = math.exp(float(cosine(anchor[row], positive[row], dim=0)) / 0.5)
        every = zip(negative[row], excluded[row], strict=True)
        far = [math.exp(float(cosine(anchor[row], other, dim=0)) / 0.5) for other, left_out in every if not left_out]
        assert float(found.loss[row]) == pytest.approx(-math.log(near / (near + sum(far))), rel=1e-5)
        assert float(found.logsumexp[row]) == pytest.approx(math.log(sum(far)), rel=1e-5, abs=1e-6)
        assert bool(found.correct[row]) == (near > max(far))


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_a_gamma_that_is_no_discount_is_refused(gamma: float) -> None:
    with pytest.raises(ValueError, match="gamma is"):
        truncated_geometric(torch.zeros(1), torch.ones(1, dtype=torch.int64), gamma=gamma)


def test_a_temperature_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match=r"temperature is 0\.0"):
        info_nce(torch.ones(1, 1), torch.ones(1, 1), torch.ones(1, 1, 1), torch.zeros(1, 1).bool(), temperature=0.0)
