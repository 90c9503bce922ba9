"""What a trajectory would teach: information gains, Fisher information, disagreement; and Bayesian linear regression.

A model that is linear in its last layer's weights, y_d = phi(z)^T w_d + noise, has a Gaussian posterior in closed form,
w_d ~ N(mean_d, covariance), with one covariance `[P, P]` for all D outputs, since they share features and noise.
Gains are per step and add up along the horizon, so that a planner can discount them.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

Matrix = Float[Tensor, "P P"]

LARGEST_UNROLLED = 32
"""Rows of a matrix that is factored column by column on a GPU: a step or two of a plan each."""


class Weights(NamedTuple):
    """Posterior of a linear layer: `mean` `[P, D]` and the `covariance` `[P, P]` that its outputs share."""

    mean: Float[Tensor, "P D"]
    covariance: Matrix


def conditioned(
    prior: Weights, features: Float[Tensor, "M P"], target: Float[Tensor, "M D"], *, variance: float | Tensor
) -> Weights:
    """The posterior after M observations y = phi^T w + N(0, variance); one is a rank-one update.

    K = S Phi^T (variance I + Phi S Phi^T)^-1,   mean += K (Y - Phi mean),   S -= K Phi S

    Costs O(P^2 M + M^3), and needs no P x P inverse. Feed float64: the subtraction loses digits, a thousand of them
    lose three of the sixteen. On a GPU the observations are taken one after the other, which a CUDA graph can hold.

    Args:
        variance: of the targets' noise, in their unit squared.

    Source: Bishop 2006, Pattern Recognition and Machine Learning, eq. 3.50 and 3.51 by the Woodbury identity.
    """
    if features.is_cuda and len(features) > 1:
        for row, value in zip(features.split(1), target.split(1), strict=True):
            prior = conditioned(prior, row, value, variance=variance)
        return prior
    half = features @ prior.covariance
    inner = half @ features.T
    inner.diagonal().add_(variance)
    gain = half.T / inner if len(inner) == 1 else torch.cholesky_solve(half, torch.linalg.cholesky_ex(inner)[0]).T
    mean = prior.mean + gain @ (target - features @ prior.mean)
    covariance = prior.covariance - gain @ half
    return Weights(mean, (covariance + covariance.T) / 2)


def cholesky(matrix: Float[Tensor, "*batch N N"]) -> Float[Tensor, "*batch N N"]:
    """The lower factor L of symmetric positive matrices L L^T, unchecked.

    On a GPU small ones are factored column by column, all matrices at once: the libraries' factorisations cannot be
    part of a CUDA graph.

    Source: Golub and Van Loan 2013, Matrix Computations, algorithm 4.2.2 (outer products).
    """
    if matrix.is_cuda and matrix.shape[-1] <= LARGEST_UNROLLED:
        return cholesky_by_columns(matrix)
    factor: Tensor = torch.linalg.cholesky_ex(matrix)[0]
    return factor


def cholesky_by_columns(matrix: Float[Tensor, "*batch N N"]) -> Float[Tensor, "*batch N N"]:
    """`cholesky`, as what a GPU does."""
    rest, columns = matrix, []
    for j in range(matrix.shape[-1]):
        column = rest[..., :, j] * rest[..., j, j].rsqrt().unsqueeze(-1)
        columns.append(column)
        rest = rest - column.unsqueeze(-1) * column.unsqueeze(-2)
    return torch.stack(columns, -1).tril()


def from_moments(precision: Matrix, moment: Float[Tensor, "P D"]) -> Weights:
    """The posterior from its sums: precision = S_0^-1 + sum phi phi^T / variance, moment = sum phi y^T / variance.

    What any number of `conditioned` calls amounts to, without their rounding.
    """
    factor = torch.linalg.cholesky_ex(precision)[0]
    return Weights(torch.cholesky_solve(moment, factor), torch.cholesky_inverse(factor))


def information_gain(
    features: Float[Tensor, "*paths H P"], covariance: Matrix, *, variance: float | Tensor, outputs: int
) -> Float[Tensor, "*paths H"]:
    """What each step of a path adds to the information about a linear layer's weights; never negative.

    sum_t gain_t = outputs * log det(I_H + Phi S Phi^T / variance)

    This is twice the mutual information (in nats) between the weights and what would be seen on the path. By the chain
    rule gain_t is the log of the t-th pivot of the Cholesky factorisation: H x H, whatever the number of weights.

    Args:
        features: Phi of the states of a path.
        covariance: S of the weights of one output.
        variance: of the observation noise.
        outputs: D, how many outputs share the features.

    Source: Lindley 1956; for Gaussian linear models MacKay 1992, "Information-based objective functions for active data
    selection", eq. 4.6.
    """
    inner = (features @ covariance) @ features.transpose(-1, -2) / variance
    inner.diagonal(dim1=-2, dim2=-1).add_(1)
    pivots: Tensor = cholesky(inner).diagonal(dim1=-2, dim2=-1)
    return 2 * outputs * pivots.clamp(min=1).log()


def disagreement(predictions: Float[Tensor, "E *paths H D"], variance: Float[Tensor, "D"]) -> Float[Tensor, "*paths H"]:
    """Variance over the members of an ensemble, in units of the process noise; mean over dimensions.

    Source: Pathak et al. 2019, arXiv:1906.04161, eq. 1, and Sekar et al. 2020, arXiv:2005.05960, eq. 3; dividing by
    the noise is ours: without it the dimension of the largest scale is all that counts.
    """
    return (predictions.var(0, correction=0) / variance).mean(-1)


def optimistic_gain(
    predictions: Float[Tensor, "E *paths H D"], variance: Float[Tensor, "D"]
) -> Float[Tensor, "*paths H"]:
    """OPAX's reward: sum_d log(1 + epistemic variance_d / aleatoric variance_d).

    Source: Sukhija et al. 2023, arXiv:2306.12371, eq. 9.
    """
    return torch.log1p(predictions.var(0, correction=0) / variance).sum(-1)


def distillation_error(
    predicted: Float[Tensor, "*paths H F"], target: Float[Tensor, "*paths H F"]
) -> Float[Tensor, "*paths H"]:
    """Mean squared error of a network that imitates a random one where the agent has been.

    Source: Burda et al. 2018, arXiv:1810.12894, section 2.2.
    """
    return (predicted - target).square().mean(-1)


def fisher_rows(
    by_state: Float[Tensor, "*paths H D D"],
    by_weights: Float[Tensor, "*paths H D Q"],
    observed_by: Float[Tensor, "*paths H O D"],
    *,
    process_noise: Float[Tensor, "D"],
    observation_noise: Float[Tensor, "*paths H O"],
    uncertainty: Float[Tensor, "*paths D D"],
) -> Float[Tensor, "*paths HO Q"]:
    """What the observations of a path say about Q parameters theta: their sensitivities, in standard deviations.

    G <- F_t G + F_theta,   P <- F_t P F_t^T + Q,   S = H P H^T + R,   row_t = S^{-1/2} H G,   K = P H^T S^{-1}
    G <- (I - K H) G,   P <- (I - K H) P (I - K H)^T + K R K^T

    Both are conditioned on the earlier observations of the path, as a Kalman filter is: rows are the sensitivities of
    its innovations. So the Fisher information of the first t steps, J_t = rows^T rows, is that of their observations
    taken together, whose noise is correlated through the state. Rows stay unmultiplied, because H O is far smaller
    than Q where theta are a layer's weights.

    Args:
        by_state: F = dz'/dz at each step.   by_weights: F_theta = dz'/dtheta.
        observed_by: H = dy/dz at the state that each step leads to.
        process_noise: Q, the variances of one step.   observation_noise: R, the variances of an observation.
        uncertainty: P_0, the covariance of the state that the path begins with; G_0 is 0.

    Source: the sensitivity recursion of Gupta & Mehra 1974, "Computational aspects of maximum likelihood estimation and
    reduction in sensitivity function calculations"; that later innovations depend on theta through P too is left out.
    The update of P is Joseph's: Bucy & Joseph 1968, positive in float32 too.
    """
    sensitivity = torch.zeros_like(by_weights.select(-3, 0))
    covariance, noise, rows = uncertainty, torch.diag(process_noise), []
    eye = torch.eye(len(noise), dtype=noise.dtype, device=noise.device)
    for t in range(by_state.shape[-3]):
        forward, observe = by_state.select(-3, t), observed_by.select(-3, t)
        sensitivity = forward @ sensitivity + by_weights.select(-3, t)
        covariance = forward @ covariance @ forward.transpose(-1, -2) + noise
        error = torch.diag_embed(observation_noise.select(-2, t))
        seen = observe @ covariance
        root = cholesky(seen @ observe.transpose(-1, -2) + error)
        rows.append(torch.linalg.solve_triangular(root, observe @ sensitivity, upper=False))
        half = torch.linalg.solve_triangular(root, seen, upper=False)
        gain = torch.linalg.solve_triangular(root.transpose(-1, -2), half, upper=True).transpose(-1, -2)
        left = eye - gain @ observe
        sensitivity = left @ sensitivity
        covariance = left @ covariance @ left.transpose(-1, -2) + gain @ error @ gain.transpose(-1, -2)
    return torch.cat(rows, dim=-2)


def d_optimality(
    rows: Float[Tensor, "*paths HO Q"], prior: Float[Tensor, "P P"], *, steps: int
) -> Float[Tensor, "*paths H"]:
    """What each of the `steps` adds to log det(I + prior J), twice the information in nats; never negative.

    Args:
        rows: whitened sensitivities, J = rows^T rows.
        prior: covariance of theta, or of each of Q / P equal blocks of it, such as the outputs of a layer.

    Source: Lindley 1956; Pukelsheim 2006, Optimal Design of Experiments, chapter 6, with the rows' Gram matrix for J.
    """
    pivots: Tensor = _posterior_root(rows, prior)[0].diagonal(dim1=-2, dim2=-1)
    gain: Tensor = 2 * pivots.clamp(min=1).log().unflatten(-1, (steps, -1)).sum(-1)
    return gain


def a_optimality(
    rows: Float[Tensor, "*paths HO Q"], prior: Float[Tensor, "P P"], *, steps: int
) -> Float[Tensor, "*paths H"]:
    """By how much each of the `steps` lowers tr((prior^-1 + J)^-1), the summed variance of theta; never negative.

    Args: as for `d_optimality`.

    Source: Pukelsheim 2006, Optimal Design of Experiments, chapter 6.
    """
    root, half = _posterior_root(rows, prior)
    explained: Tensor = torch.linalg.solve_triangular(root, half, upper=False).square().sum(-1)
    lowered: Tensor = explained.unflatten(-1, (steps, -1)).sum(-1)
    return lowered


def _posterior_root(rows: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
    """Cholesky factor of I + rows P rows^T, and rows P."""
    half = (rows.unflatten(-1, (-1, prior.shape[-1])) @ prior).flatten(-2)
    inner = half @ rows.transpose(-1, -2)
    inner.diagonal(dim1=-2, dim2=-1).add_(1)
    return cholesky(inner), half
