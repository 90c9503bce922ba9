"""Cross-entropies in closed form equal the mean of the other policy's log-probability over samples."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from modules.networks.distributions import Categorical, DiagonalGaussian, cross_entropy
from modules.networks.heads.policy import (
    BernoulliHead,
    CategoricalHead,
    DiagonalGaussianHead,
    HybridHead,
    MultiCategoricalHead,
    PolicyHead,
)

HEADS: dict[str, Callable[[], PolicyHead]] = {
    "categorical": lambda: CategoricalHead(3, 4),
    "multi-categorical": lambda: MultiCategoricalHead(3, [2, 3]),
    "bernoulli": lambda: BernoulliHead(3, 2),
    "gaussian": lambda: DiagonalGaussianHead(3, 2),
    "hybrid": lambda: HybridHead(3, [3], 1),
}


def distribution(head: Any, features: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
    """A distribution of a head whose outputs differ from row to row."""
    with torch.no_grad():
        head.linear.weight.normal_()
        if hasattr(head, "log_std"):
            head.log_std.normal_(std=0.3)
        return head(features, mask)


@pytest.mark.parametrize("make", HEADS.values(), ids=HEADS)
def test_it_is_the_mean_negative_log_probability_of_samples(make: Callable[[], PolicyHead]) -> None:
    one, other, features = make(), make(), torch.randn(3, 3)
    reference, policy = distribution(one, features), distribution(other, features)
    noise, repeated = one.noise((60_000,), torch.Generator().manual_seed(1)), features.repeat(20_000, 1)

    with torch.no_grad():
        sampled = -other(repeated, None).log_prob(one(repeated, None).sample(noise)).view(-1, 3).mean(0)

    torch.testing.assert_close(cross_entropy(reference, policy), sampled, rtol=0.03, atol=0.03)


@pytest.mark.parametrize("make", HEADS.values(), ids=HEADS)
def test_that_of_a_policy_with_itself_is_its_entropy(make: Callable[[], PolicyHead]) -> None:
    policy = distribution(make(), torch.randn(3, 3))
    torch.testing.assert_close(cross_entropy(policy, policy), policy.entropy())


def test_masked_actions_have_no_part_in_it() -> None:
    mask = torch.tensor([[True, False, True, True]])
    reference = distribution(CategoricalHead(3, 4), torch.randn(1, 3), mask)
    policy = distribution(CategoricalHead(3, 4), torch.randn(1, 3), mask)
    allowed = [Categorical(each.logits[mask].unsqueeze(0)) for each in (reference, policy)]
    torch.testing.assert_close(cross_entropy(reference, policy), cross_entropy(*allowed))


def test_distributions_of_different_classes_are_refused() -> None:
    with pytest.raises(TypeError, match="No cross-entropy of Categorical and DiagonalGaussian"):
        cross_entropy(Categorical(torch.zeros(1, 2)), DiagonalGaussian(torch.zeros(1, 2), torch.zeros(2)))
