"""Linear-Gaussian observations: probabilistic PCA, its state estimate, and least squares on noisy states."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from modules.functional.scans import linear_scan

RAYS = 16_384
"""Directions along which the extent of a box is measured."""


class LinearGaussian(NamedTuple):
    """Model y = weight z + mean + N(0, variance I), weight `[Dy, D]` and mean `[Dy]`."""

    weight: Float[Tensor, "Dy D"]
    mean: Float[Tensor, "Dy"]
    variance: Float[Tensor, ""]


class StateSensor(NamedTuple):
    """State estimate weight y + bias with independent errors of the given variances."""

    weight: Float[Tensor, "D Dy"]
    bias: Float[Tensor, "D"]
    variance: Float[Tensor, "D"]


def probabilistic_pca(obs: Float[Tensor, "M Dy"], dimensions: int) -> LinearGaussian:
    """Fit y = W z + mean + noise with z ~ N(0, I) by maximum likelihood.

    W = U_D (L_D - variance I)^(1/2),   variance = mean of the Dy - D smallest eigenvalues L of the covariance of y

    Raises: ValueError if `dimensions` is not smaller than Dy, or M not larger than `dimensions`.

    Source: Tipping and Bishop 1999, "Probabilistic principal component analysis", eq. 7 and 8.
    """
    if not dimensions < min(obs.shape[1], len(obs)):
        raise ValueError(
            f"{dimensions} dimensions cannot be identified from {len(obs)} observations of {obs.shape[1]} elements:"
            " there must be more of both. Choose a longer warm-up."
        )
    mean = obs.mean(0)
    eigenvalues, vectors = torch.linalg.eigh((obs - mean).T @ (obs - mean) / len(obs))
    variance = eigenvalues[:-dimensions].mean()
    scale = (eigenvalues[-dimensions:] - variance).clamp(min=torch.finfo(obs.dtype).tiny).sqrt()
    return LinearGaussian((vectors[:, -dimensions:] * scale).flip(1), mean, variance)


def state_sensor(model: LinearGaussian) -> StateSensor:
    """Return the maximum likelihood estimate of z from y: without a prior, so that a filter can weight it.

    (W^T W)^-1 W^T (y - mean), with the variances variance diag((W^T W)^-1)
    """
    precision = model.weight.T @ model.weight
    weight = torch.linalg.solve(precision, model.weight.T)
    return StateSensor(weight, -weight @ model.mean, model.variance * torch.linalg.inv(precision).diagonal())


def rescale(
    model: LinearGaussian, low: Float[Tensor, "D"], high: Float[Tensor, "D"], to: tuple[Tensor, Tensor]
) -> LinearGaussian:
    """Map the box [low, high] of latent states to the box `to`, axis by axis; observations are as before."""
    scale = (high - low) / (to[1] - to[0])
    return model._replace(weight=model.weight * scale, mean=model.mean + model.weight @ (low - scale * to[0]))


def box_extent(
    model: LinearGaussian, low: Float[Tensor, "Dy"], high: Float[Tensor, "Dy"]
) -> tuple[Float[Tensor, "D"], Float[Tensor, "D"]]:
    """Return the corners of the smallest box around the latent states whose expected observation lies in [low, high].

    It is measured along `RAYS` fixed directions from z = 0.

    Raises: ValueError if the model's mean, the observation of z = 0, lies outside.
    """
    if not ((low < model.mean) & (model.mean < high)).all():
        raise ValueError("The mean observation lies outside the box of observations: widen the box.")
    directions = torch.randn(RAYS, model.weight.shape[1], generator=torch.Generator().manual_seed(0))
    directions = directions.to(model.weight)
    slope = directions @ model.weight.T
    reach = torch.where(slope > 0, high - model.mean, model.mean - low) / slope.abs()  # inf along a constant element
    ends = directions * reach.amin(1, keepdim=True)
    return ends.amin(0), ends.amax(0)


def whiten_differences(
    columns: Float[Tensor, "L N C"], contiguous: Bool[Tensor, "L N"], *, process: Tensor, sensor: Tensor
) -> Float[Tensor, "L N C"]:
    """Whiten a regression on differences of noisy states: ordinary least squares on the result is generalised.

    d_t = x_t + w_t + e_{t+1} - e_t,   var w = process,   var e = sensor

    Consecutive differences share the error e of the state between them, so their covariance is tridiagonal. Its
    Cholesky factor is applied from the left, in every row and contiguous piece separately:

    v_t = d_t + sensor / s_{t-1} v_{t-1},   s_t = process + 2 sensor - sensor^2 / s_{t-1},   result v_t / sqrt(s_t)

    Features and targets both pass through it. Without an error of the states each is divided by sqrt(process). With a
    large one the result compares states several steps apart.

    Args:
        columns: features and targets of every step.
        contiguous: steps that count; the result is zero in others.
        process: variance of w, a scalar.
        sensor: variance of e, a scalar, in the unit of the differences.

    Source: Aitken 1936, "On least squares and linear combination of observations"; s_t in closed form by the
    continuants of a tridiagonal matrix.
    """
    step = torch.arange(1, len(contiguous) + 1, device=contiguous.device).unsqueeze(1)
    age = step - torch.where(contiguous, 0, step).cummax(0).values  # 1 at the first step of a piece
    root = (process.square() + 4 * process * sensor).sqrt()
    largest = (process + 2 * sensor + root) / 2
    ratio = (process + 2 * sensor - root) / (2 * largest)
    variance = largest * (1 - ratio ** (age + 1)) / (1 - ratio ** age.clamp(min=1))
    before = torch.cat([torch.ones_like(variance[:1]), variance[:-1]])
    keep = torch.where(contiguous & (age > 1), sensor / before, 0.0).unsqueeze(-1)
    entered = torch.where(contiguous.unsqueeze(-1), columns, 0.0)
    white = linear_scan(keep, entered, torch.zeros_like(entered[0])) / variance.clamp(min=process).sqrt().unsqueeze(-1)
    return torch.where(contiguous.unsqueeze(-1), white, 0.0)
