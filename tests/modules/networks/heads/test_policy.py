"""Policy heads against torch.distributions, and their noise, masks and precision."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, distributions, nn
from torch.testing import assert_close

from modules.networks.distributions import Bernoulli, Categorical, DiagonalGaussian, MultiCategorical
from modules.networks.heads.policy import ValueHead, policy_head

KINDS = {
    "discrete": ([4], 0),
    "multidiscrete": ([3, 2, 4], 0),
    "binary": ([2, 2, 2], 0),
    "continuous": ([], 2),
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def frequencies(choices: Tensor, count: int) -> Tensor:
    return torch.bincount(choices, minlength=count) / choices.numel()


def test_categorical_agrees_with_torch() -> None:
    logits = torch.randn(50, 4, dtype=torch.float64) * 3
    ours, reference = Categorical(logits), distributions.Categorical(logits=logits)
    action = reference.sample()

    assert_close(ours.log_prob(action), reference.log_prob(action), rtol=1e-12, atol=0)
    assert_close(ours.entropy(), reference.entropy(), rtol=1e-12, atol=1e-14)
    assert torch.equal(ours.mode, reference.mode)


def test_multi_categorical_sums_over_independent_parts() -> None:
    sizes = [3, 2, 4]
    logits = torch.randn(50, 9, dtype=torch.float64)
    references = [distributions.Categorical(logits=part) for part in logits.split(sizes, -1)]
    action = torch.stack([reference.sample() for reference in references], -1)

    ours = MultiCategorical(logits, sizes)

    pairs = zip(references, action.unbind(-1), strict=True)
    assert_close(ours.log_prob(action), sum(reference.log_prob(part) for reference, part in pairs), rtol=1e-12, atol=0)
    assert_close(ours.entropy(), sum(reference.entropy() for reference in references), rtol=1e-12, atol=0)
    assert torch.equal(ours.mode, torch.stack([reference.mode for reference in references], -1))


def test_bernoulli_agrees_with_torch() -> None:
    logits = torch.randn(50, 3, dtype=torch.float64) * 3
    ours = Bernoulli(logits)
    reference = distributions.Independent(distributions.Bernoulli(logits=logits), 1)
    action = reference.sample()

    for stored in (action, action.long(), action.bool()):
        assert_close(ours.log_prob(stored), reference.log_prob(action), rtol=1e-12, atol=1e-14)
    assert_close(ours.entropy(), reference.entropy(), rtol=1e-12, atol=1e-14)
    assert torch.equal(ours.mode, (logits.sigmoid() > 0.5).long())


def test_diagonal_gaussian_agrees_with_torch() -> None:
    mean, log_std = torch.randn(50, 2, dtype=torch.float64), torch.tensor([-1.5, 0.7], dtype=torch.float64)
    ours = DiagonalGaussian(mean, log_std)
    reference = distributions.Independent(distributions.Normal(mean, log_std.exp().expand_as(mean)), 1)
    action = reference.sample()

    assert_close(ours.log_prob(action), reference.log_prob(action), rtol=1e-12, atol=0)
    assert_close(ours.entropy(), reference.entropy(), rtol=1e-12, atol=0)
    assert torch.equal(ours.mode, mean)


def test_categorical_samples_have_the_frequencies_of_its_probabilities() -> None:
    head = policy_head(2, "discrete", [4], 0)
    logits = torch.tensor([1.0, -1.0, 0.0, 2.0])

    choices = Categorical(logits).sample(head.noise((40_000,), generator()))

    assert_close(frequencies(choices, 4), logits.softmax(-1), rtol=0, atol=0.01)


def test_multi_categorical_samples_have_the_frequencies_of_each_part() -> None:
    head = policy_head(2, "multidiscrete", [3, 2], 0)
    logits = torch.tensor([1.0, -1.0, 0.0, 2.0, 1.0])

    first, second = MultiCategorical(logits, [3, 2]).sample(head.noise((40_000,), generator())).unbind(-1)

    assert_close(frequencies(first, 3), logits[:3].softmax(-1), rtol=0, atol=0.01)
    assert_close(frequencies(second, 2), logits[3:].softmax(-1), rtol=0, atol=0.01)
    assert_close(
        frequencies(2 * first + second, 6)[0],
        (first == 0).float().mean() * (second == 0).float().mean(),
        rtol=0,
        atol=0.01,
    )


def test_bernoulli_and_gaussian_samples_have_the_right_moments() -> None:
    logits, mean, log_std = torch.tensor([-2.0, 0.0, 1.0]), torch.tensor([3.0, -1.0]), torch.tensor([0.5, -1.0])
    binary, continuous = (policy_head(2, kind, *KINDS[kind]) for kind in ("binary", "continuous"))

    bits = Bernoulli(logits).sample(binary.noise((40_000,), generator())).float()
    actions = DiagonalGaussian(mean, log_std).sample(continuous.noise((40_000,), generator()))

    assert_close(bits.mean(0), logits.sigmoid(), rtol=0, atol=0.01)
    assert_close(actions.mean(0), mean, rtol=0, atol=0.03)
    assert_close(actions.std(0), log_std.exp(), rtol=0.02, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_heads_start_almost_uniform_and_give_actions_of_the_right_form(kind: str) -> None:
    head = policy_head(8, kind, *KINDS[kind])
    noise = head.noise((5, 6), generator())

    policy = head(torch.randn(6, 8))
    action = policy.sample(noise[0])

    assert noise.shape[:2] == (5, 6) and noise.isfinite().all()
    assert policy.log_prob(action).shape == policy.entropy().shape == (6,)
    assert action.shape == policy.mode.shape == {"discrete": (6,), "continuous": (6, 2)}.get(kind, (6, 3))
    assert action.dtype == (torch.float32 if kind == "continuous" else torch.int64)
    assert head.linear.weight.abs().max() <= 0.01 and not head.linear.bias.any()


@pytest.mark.parametrize("kind", KINDS)
def test_noise_is_a_function_of_the_generator(kind: str) -> None:
    head = policy_head(8, kind, *KINDS[kind])

    assert torch.equal(head.noise((7,), generator(1)), head.noise((7,), generator(1)))
    assert not torch.equal(head.noise((7,), generator(1)), head.noise((7,), generator(2)))


@pytest.mark.parametrize("kind", ["discrete", "multidiscrete"])
def test_masked_choices_are_never_made_and_cost_no_entropy(kind: str) -> None:
    head = policy_head(8, kind, *KINDS[kind])
    mask = torch.ones(sum(KINDS[kind][0]), dtype=torch.bool)
    mask[[0, -1]] = False

    policy = head(torch.randn(8) * 100, mask)
    first = policy.sample(head.noise((20_000,), generator())).reshape(20_000, -1)

    assert (first[:, 0] != 0).all() and (first[:, -1] != 3).all()
    allowed = {"discrete": [2], "multidiscrete": [2, 2, 3]}[kind]
    assert policy.entropy() <= sum(torch.tensor(allowed).log()) + 1e-5
    assert policy.entropy().isfinite()


def test_a_binary_mask_forbids_zeros_and_ones_apart() -> None:
    head = policy_head(8, "binary", [2, 2, 2], 0)
    mask = torch.tensor([False, True, True, False, True, True])

    policy = head(torch.randn(8), mask)
    bits = policy.sample(head.noise((1000,), generator()))

    assert bits[:, 0].all() and not bits[:, 1].any() and 0 < bits[:, 2].float().mean() < 1
    assert_close(policy.entropy(), torch.tensor(2.0).log(), rtol=1e-3, atol=0)


def test_masked_policies_have_finite_gradients_and_none_for_what_is_forbidden() -> None:
    head = policy_head(8, "discrete", [4], 0)
    mask = torch.tensor([True, False, True, True]).expand(6, 4)

    policy = head(torch.randn(6, 8), mask)
    (policy.log_prob(torch.full((6,), 2)) + policy.entropy()).sum().backward()

    gradient = head.linear.weight.grad
    assert gradient is not None and gradient.isfinite().all()
    assert not gradient[1].any() and gradient[0].any()


@pytest.mark.parametrize(
    ("make", "action"),
    [
        (Categorical, torch.tensor([2, 0])),
        (lambda logits: MultiCategorical(logits, [2, 1, 3]), torch.tensor([[1, 0, 2], [0, 0, 1]])),
        (Bernoulli, torch.tensor([[0, 1, 1, 0, 1, 0], [1, 1, 0, 0, 0, 1]])),
        (lambda mean: DiagonalGaussian(mean, 0.1 * mean[0]), torch.ones(2, 6)),
    ],
    ids=["categorical", "multi-categorical", "bernoulli", "gaussian"],
)
def test_gradients_of_log_prob_and_entropy_are_right(make: Callable[[Tensor], Categorical], action: Tensor) -> None:
    parameters = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)

    assert torch.autograd.gradcheck(lambda x: make(x).log_prob(action), parameters)
    assert torch.autograd.gradcheck(lambda x: make(x).entropy(), parameters)


@pytest.mark.parametrize("kind", KINDS)
def test_policies_and_values_are_float32_under_autocast(kind: str) -> None:
    body, head, critic = nn.Linear(8, 8), policy_head(8, kind, *KINDS[kind]), ValueHead(8)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = body(torch.randn(6, 8))
        policy, value = head(features), critic(features)
        action = policy.sample(head.noise((6,), generator()))
        results = policy.log_prob(action), policy.entropy(), value

    assert features.dtype == torch.bfloat16
    assert [result.dtype for result in results] == [torch.float32] * 3
    assert_close(value, critic(features.float()), rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_heads_compile_into_one_graph_and_choose_the_same_actions(kind: str) -> None:
    head = policy_head(8, kind, *KINDS[kind])
    features, noise = torch.randn(6, 8), head.noise((6,), generator())

    def act(features: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        policy = head(features)
        action = policy.sample(noise)
        return action, policy.log_prob(action), policy.entropy()

    compiled = torch.compile(act, fullgraph=True, backend="eager")
    assert_close(compiled(features, noise), act(features, noise))


def test_value_head_has_gain_1_and_no_trailing_dimension() -> None:
    head = ValueHead(16)

    assert head(torch.randn(5, 7, 16)).shape == (5, 7)
    assert_close(head.linear.weight.norm(), torch.tensor(1.0))


def test_heads_refuse_an_unknown_kind_and_a_mask_for_a_continuous_action() -> None:
    with pytest.raises(
        ValueError, match="action_type is 'text'; use discrete, multidiscrete, binary, continuous or hybrid"
    ):
        policy_head(8, "text", [2], 0)
    with pytest.raises(ValueError, match="cannot be masked"):
        policy_head(8, "continuous", [], 2)(torch.randn(1, 8), torch.ones(1, 2, dtype=torch.bool))
