"""Normal distributions with independent dimensions, given by means and variances `[..., D]`.

Variances are positive. Shapes broadcast, and no argument is changed.
"""

import math

import torch
from torch import Tensor


def sample(mean: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
    """Draw samples from standard normal `noise`, differentiable in mean and variance.

    mean + sqrt(variance) noise

    Source: Kingma and Welling 2014, arXiv:1312.6114, section 2.4.
    """
    return torch.addcmul(mean, variance.sqrt(), noise)


def log_density(x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Compute the logarithm of N(x; mean, variance) in nats, of every dimension separately.

    -1/2 ((x - mean)^2 / variance + log variance + log 2 pi)

    Source: Bishop 2006, Pattern Recognition and Machine Learning, eq. 1.46.
    """
    return -0.5 * ((x - mean).square() / variance + variance.log() + math.log(2 * math.pi))


def divergence(mean_q: Tensor, variance_q: Tensor, mean_p: Tensor, variance_p: Tensor) -> Tensor:
    """Compute the Kullback-Leibler divergence KL(q || p) in nats, of every dimension separately.

    1/2 ((m_q - m_p)^2 / v_p + r - 1 - log r),   r = v_q / v_p

    Near r = 1 the difference r - 1 is exact, and log r is subtracted first, so that their small difference is not lost
    to float32's rounding.

    Source: Kingma and Welling 2014, arXiv:1312.6114, appendix B, has N(0, 1) for p.
    """
    ratio = variance_q / variance_p
    return 0.5 * ((mean_q - mean_p).square() / variance_p + (ratio - 1 - ratio.log()))


def inverse_softplus(value: Tensor) -> Tensor:
    """Return x with softplus(x) = `value`; values under 1e-8 are taken as 1e-8."""
    value = value.clamp(min=1e-8)
    return value + torch.log(-torch.expm1(-value))
