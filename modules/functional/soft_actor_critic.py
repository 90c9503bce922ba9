"""Soft actor-critic: soft values and targets, density of a squashed Gaussian, temperature loss.

Soft values include the entropy of the policy, weighted by `alpha` (return per nat). Shapes: `[*N]` is any batch;
`[*N A]` has one entry per discrete action or action dimension. Call targets under no_grad.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

Entries = Float[Tensor, "*N"]
PerChoice = Float[Tensor, "*N A"]
Scalar = Float[Tensor, ""]

_LOG_2 = math.log(2.0)
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


def log_tanh_slope(pre_tanh: Float[Tensor, "*N"]) -> Tensor:
    """Compute the logarithm of the derivative of tanh: log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)).

    The right-hand side is exact where 1 - tanh(u)^2 rounds to zero, from |u| = 9 on in float32.
    """
    return 2.0 * (_LOG_2 - pre_tanh - F.softplus(-2.0 * pre_tanh))


def squashed_log_prob(
    pre_tanh: PerChoice, mean: PerChoice, log_std: PerChoice, *, scale: float | Tensor = 1.0
) -> Entries:
    """Compute the log-density in nats of the action scale tanh(u) + any bias, u normal; summed over the dimensions.

    log pi(a) = sum_i [ log N(u_i; mean_i, std_i) - log(1 - tanh(u_i)^2) - log scale_i ]

    Args:
        pre_tanh: u, not the action, since tanh cannot be inverted where it rounds to 1.
        scale: half the width of the action's range; positive. 1 gives the density of tanh(u).

    Source: Haarnoja et al. 2018, arXiv:1801.01290, appendix C, eq. 21, which has scale 1.
    """
    deviation = (pre_tanh - mean) * (-log_std).exp()
    density = (-0.5 * deviation.square() - log_std - log_tanh_slope(pre_tanh)) - _LOG_SQRT_2PI
    if isinstance(scale, Tensor) or scale != 1.0:
        density = density - torch.as_tensor(scale, dtype=density.dtype, device=density.device).log()
    return density.sum(-1)


def reparametrised_log_prob(pre_tanh: PerChoice, noise: PerChoice, log_std: PerChoice) -> Entries:
    """Compute `squashed_log_prob` at scale 1 of u = mean + std noise, without dividing by std.

    Args:
        pre_tanh: u, through which gradients flow to mean and std.
        noise: standard normal.
    """
    return (-0.5 * noise.square() - _LOG_SQRT_2PI - log_std - log_tanh_slope(pre_tanh)).sum(-1)


def soft_value(q1: Entries, q2: Entries, log_prob: Entries, alpha: float | Tensor) -> Entries:
    """Compute the soft value of a state from one sampled action: V = min(q1, q2) - alpha log pi(a).

    Source: Haarnoja et al. 2018, arXiv:1812.05905, eq. 3; the minimum is Fujimoto et al. 2018, arXiv:1802.09477.
    """
    return torch.minimum(q1, q2) - alpha * log_prob


def expected_soft_value(q1: PerChoice, q2: PerChoice, log_probs: PerChoice, alpha: float | Tensor) -> Entries:
    """Compute the soft value of a state over all discrete actions: V = sum_a pi(a) (min(q1, q2)(a) - alpha log pi(a)).

    A masked action has probability 0 and adds exactly 0.

    Source: Christodoulou 2019, arXiv:1910.07207, eq. 10.
    """
    return (log_probs.exp() * (torch.minimum(q1, q2) - alpha * log_probs)).sum(-1)


def soft_q_target(
    reward: Entries,
    next_q1: Entries,
    next_q2: Entries,
    next_log_prob: Entries,
    alpha: float | Tensor,
    terminated: Bool[Tensor, "*N"],
    *,
    gamma: float | Tensor,
) -> Entries:
    """Compute the target of both critics: y = r + gamma (1 - terminated) (min(q1', q2') - alpha log pi(a'|s')).

    Args:
        reward: one reward, or the sum of n discounted ones; the entropies of the n - 1 steps between are left out.
        next_q1, next_q2: of the target critics, at an action drawn by the current policy in the next state.
        terminated: no value follows. After a truncation the value is bootstrapped.
        gamma: discount of the next value: gamma^n after n rewards.

    Source: Haarnoja et al. 2018, arXiv:1812.05905, eq. 5 and 6.
    """
    following = soft_value(next_q1, next_q2, next_log_prob, alpha)
    return torch.addcmul(reward, gamma * (~terminated).to(reward.dtype), following)


def temperature_loss(log_alpha: Scalar, entropy: Entries, target: float | Tensor) -> Scalar:
    """Compute the loss of the temperature: mean of alpha (entropy - target); alpha falls where the entropy is too high.

    Args:
        entropy: of the policy, or -log pi of a sample; detached.
        target: in nats, a scalar or one per entry.

    Source: Haarnoja et al. 2018, arXiv:1812.05905, eq. 18, by the logarithm of alpha so that it stays positive.
    """
    return log_alpha.exp() * (entropy.detach() - target).mean()
