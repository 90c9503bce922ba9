"""The squashed normal policy."""

import pytest
import torch

from modules.networks.heads.squashed_gaussian import LOG_STD_HIGH, LOG_STD_LOW, SquashedGaussian, SquashedGaussianHead


def test_the_first_policy_is_a_standard_normal_before_squashing() -> None:
    policy = SquashedGaussianHead(8, 3)(torch.randn(5, 8))

    torch.testing.assert_close(policy.log_std, torch.zeros(5, 3), atol=0.1, rtol=0)
    torch.testing.assert_close(policy.mean, torch.zeros(5, 3), atol=0.1, rtol=0)


def test_the_deviation_stays_between_its_bounds() -> None:
    head = SquashedGaussianHead(4, 2)
    log_std = torch.stack([head(torch.full((1, 4), scale)).log_std for scale in (-1e6, 1e6)])

    assert log_std.min() >= LOG_STD_LOW - 1e-5 and log_std.max() <= LOG_STD_HIGH + 1e-5


def test_one_option_has_the_weights_and_the_policy_of_none() -> None:
    torch.manual_seed(3)
    plain = SquashedGaussianHead(8, 2)
    torch.manual_seed(3)
    one = SquashedGaussianHead(8, 2, options=1)
    features = torch.randn(5, 8)

    assert torch.equal(plain.linear.weight, one.linear.weight)
    assert torch.equal(plain(features).mean, one(features).mean.squeeze(1))
    assert torch.equal(plain(features).log_std, one(features).log_std.squeeze(1))


def test_options_and_noise_have_a_dimension_of_their_own() -> None:
    head = SquashedGaussianHead(8, 2, options=4)
    noise = head.noise((5,), torch.Generator().manual_seed(0))

    action, log_prob = head(torch.randn(5, 8)).sample_with_log_prob(noise)

    assert noise.shape == action.shape == (5, 4, 2) and log_prob.shape == (5, 4)


def test_sampling_with_and_without_log_prob_agree_and_stay_inside_the_box() -> None:
    policy = SquashedGaussian(torch.randn(100, 2), torch.full((100, 2), 1.0))
    noise = torch.randn(100, 2)

    action, _ = policy.sample_with_log_prob(noise)

    assert torch.equal(action, policy.sample(noise)) and action.abs().max() <= 1
    assert torch.equal(policy.mode, policy.mean.tanh())


def test_gradients_flow_through_a_sample_however_far_out() -> None:
    mean = torch.tensor([[0.0], [30.0]], requires_grad=True)
    policy = SquashedGaussian(mean, torch.zeros(2, 1))

    action, log_prob = policy.sample_with_log_prob(torch.ones(2, 1))
    (action.sum() + log_prob.sum()).backward()

    assert mean.grad is not None and torch.isfinite(mean.grad).all() and mean.grad[0].abs() > 0


def test_uniform_actions_fill_the_box_evenly() -> None:
    policy = SquashedGaussian(torch.full((20_000, 1), 3.0), torch.zeros(20_000, 1))

    action = policy.uniform(torch.randn(20_000, 1))

    shares = torch.histc(action, 10, -1, 1) / 20_000
    assert shares.tolist() == pytest.approx([0.1] * 10, abs=0.01)
