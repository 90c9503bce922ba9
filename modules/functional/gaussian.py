"""Normal distributions with independent dimensions, given by means and variances `[..., D]`."""

import math

import torch
from torch import Tensor


def sample(mean: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
    """Draws made of standard normal `noise`, differentiable in mean and variance; of any shapes that broadcast.

    Source: Kingma and Welling 2014, arXiv:1312.6114, section 2.4.
    """
    return torch.addcmul(mean, variance.sqrt(), noise)


def log_density(x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Logarithm of N(x; mean, variance) in nats, of every dimension by itself."""
    return -0.5 * ((x - mean).square() / variance + variance.log() + math.log(2 * math.pi))


def divergence(mean_q: Tensor, variance_q: Tensor, mean_p: Tensor, variance_p: Tensor) -> Tensor:
    """Kullback-Leibler divergence KL(q || p) in nats, of every dimension by itself.

    1/2 (log(v_p / v_q) + ((m_q - m_p)^2 + v_q) / v_p - 1)
    """
    ratio = variance_q / variance_p
    return 0.5 * ((mean_q - mean_p).square() / variance_p + ratio - 1 - ratio.log())
