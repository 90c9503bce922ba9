"""Soft values: returns in which the entropy of the policy counts, in units of `alpha` per nat.

Shapes: `[*N]` is any batch, `[*N A]` has one entry a choice or an action's dimension. Call targets under no_grad.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

Entries = Float[Tensor, "*N"]
PerChoice = Float[Tensor, "*N A"]
Scalar = Float[Tensor, ""]

_LOG_2 = math.log(2.0)
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


def log_tanh_slope(pre_tanh: Float[Tensor, "*N"]) -> Tensor:
    """Logarithm of the derivative of tanh: log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)).

    The right-hand side is exact where 1 - tanh(u)^2 rounds to zero, from |u| = 9 on in float32.
    """
    return 2.0 * (_LOG_2 - pre_tanh - F.softplus(-2.0 * pre_tanh))


def squashed_log_prob(
    pre_tanh: PerChoice, mean: PerChoice, log_std: PerChoice, *, scale: float | Tensor = 1.0
) -> Entries:
    """Log-density in nats of the action scale tanh(u) + any bias, where u is normal; summed over the dimensions.

    log pi(a) = sum_i [ log N(u_i; mean_i, std_i) - log(1 - tanh(u_i)^2) - log scale_i ]

    Args:
        pre_tanh: u, not the action: the action's inverse is lost where tanh rounds to 1.
        scale: half the width of the action's range; positive. 1 gives the density of tanh(u) itself.

    Source: Haarnoja et al. 2018, arXiv:1801.01290, appendix C, eq. 21, which has scale 1.
    """
    deviation = (pre_tanh - mean) * (-log_std).exp()
    density = (-0.5 * deviation.square() - log_std - log_tanh_slope(pre_tanh)) - _LOG_SQRT_2PI
    if isinstance(scale, Tensor) or scale != 1.0:
        density = density - torch.as_tensor(scale, dtype=density.dtype, device=density.device).log()
    return density.sum(-1)


def reparametrised_log_prob(pre_tanh: PerChoice, noise: PerChoice, log_std: PerChoice) -> Entries:
    """`squashed_log_prob` at scale 1 of u = mean + std noise: the noise is the deviation, so nothing is divided by std.

    Args:
        pre_tanh: u, through which gradients flow to mean and std.
        noise: standard normal.
    """
    return (-0.5 * noise.square() - _LOG_SQRT_2PI - log_std - log_tanh_slope(pre_tanh)).sum(-1)


def soft_value(q1: Entries, q2: Entries, log_prob: Entries, alpha: float | Tensor) -> Entries:
    """Soft value of a state from one action sampled there: V = min(q1, q2) - alpha log pi(a).

    Source: Haarnoja et al. 2018, arXiv:1812.05905, eq. 3; the minimum is Fujimoto et al. 2018, arXiv:1802.09477.
    """
    return torch.minimum(q1, q2) - alpha * log_prob


def expected_soft_value(q1: PerChoice, q2: PerChoice, log_probs: PerChoice, alpha: float | Tensor) -> Entries:
    """Soft value of a state over all its choices: V = sum_a pi(a) (min(q1, q2)(a) - alpha log pi(a)).

    A choice that is masked has probability 0 and adds exactly 0.

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
    """Target of both critics: y = r + gamma (1 - terminated) (min(q1', q2') - alpha log pi(a'|s')).

    Args:
        reward: one reward, or the sum of n discounted ones; the entropies of the n - 1 policies between are left out.
        next_q1, next_q2: of the target critics, at an action drawn by the present policy in the next state.
        terminated: nothing follows. A state where an episode was only truncated has a value like any other.
        gamma: discount of the next value: gamma^n behind n rewards.

    Source: Haarnoja et al. 2018, arXiv:1812.05905, eq. 5 and 6.
    """
    following = soft_value(next_q1, next_q2, next_log_prob, alpha)
    return torch.addcmul(reward, gamma * (~terminated).to(reward.dtype), following)


def temperature_loss(log_alpha: Scalar, entropy: Entries, target: float | Tensor) -> Scalar:
    """Loss of the temperature: mean of alpha (entropy - target), which falls where the policy is too random.

    Args:
        entropy: of the policy, or -log pi of a sample; takes no gradient.
        target: in nats, one number or one an entry.

    Source: Haarnoja et al. 2018, arXiv:1812.05905, eq. 18, by the logarithm of alpha so that it stays positive.
    """
    return log_alpha.exp() * (entropy.detach() - target).mean()


@torch.no_grad()
def follow_(targets: Sequence[Tensor], sources: Sequence[Tensor], tau: float) -> None:
    """Move every target towards its source in place, by the share tau (Polyak averaging); 1 copies."""
    torch._foreach_lerp_(list(targets), list(sources), tau)


@torch.no_grad()
def follow_network_(target: nn.Module, source: nn.Module, tau: float) -> None:
    """Move a target network towards its source in place: parameters and buffers.

    target <- (1 - tau) target + tau source

    Averaged are parameters and floating-point buffers, such as the running means and variances of BatchNorm. Copied are
    buffers of integers and booleans, such as `num_batches_tracked`, and the numbers of a buffer that are not finite. If
    tau is 1, everything is copied.

    Args:
        target, source: of the same architecture.
        tau: in (0, 1].

    Source: Lillicrap et al. 2016, arXiv:1509.02971, section 3. Buffers belong to what a network computes as parameters
    do; averaged with the same tau, the statistics are as old as the weights.
    """
    (targets, target_buffers), (sources, source_buffers) = _tensors_of(target), _tensors_of(source)
    follow_(targets, sources, tau)
    for old, new in zip(target_buffers, source_buffers, strict=True):
        if tau == 1.0 or not (new.is_floating_point() or new.is_complex()):
            old.copy_(new)
        else:
            finite = old.isfinite() & new.isfinite()
            old.copy_(torch.where(finite, torch.lerp(old, new.to(old.dtype), tau), new))


def _tensors_of(network: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """List the parameters and the buffers, each once: one walk over the modules, which costs more than a small step."""
    parameters: dict[Tensor, None] = {}
    buffers: dict[Tensor, None] = {}
    for part in network.modules():
        parameters |= dict.fromkeys(value for value in part._parameters.values() if value is not None)
        buffers |= dict.fromkeys(value for value in part._buffers.values() if value is not None)
    return [*parameters], [*buffers]
