"""Information gain of a trajectory: Bayesian linear regression, Fisher information, D- and A-optimality, disagreement.

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
"""Largest number of rows of a matrix that is factorised column by column on a GPU: one or two steps of a plan each."""


class Weights(NamedTuple):
    """Posterior of a linear layer: `mean` `[P, D]` and the `covariance` `[P, P]` that its outputs share."""

    mean: Float[Tensor, "P D"]
    covariance: Matrix


def posterior_update(
    prior: Weights, features: Float[Tensor, "M P"], target: Float[Tensor, "M D"], *, variance: float | Tensor
) -> Weights:
    """Return the posterior after M observations y = phi^T w + N(0, variance); M = 1 is a rank-one update.

    K = S Phi^T (variance I + Phi S Phi^T)^-1,   mean += K (Y - Phi mean),   S -= K Phi S

    Costs O(P^2 M + M^3), without a P x P inverse. Use float64: the subtraction loses digits, a thousand of them lose
    three of sixteen. On a GPU the observations are taken one after the other, which a CUDA graph can capture.

    Args:
        variance: of the targets' noise, in their unit squared.

    Source: Bishop 2006, Pattern Recognition and Machine Learning, eq. 3.50 and 3.51 by the Woodbury identity.
    """
    if features.is_cuda and len(features) > 1:
        for row, value in zip(features.split(1), target.split(1), strict=True):
            prior = posterior_update(prior, row, value, variance=variance)
        return prior
    half = features @ prior.covariance
    inner = half @ features.T
    inner.diagonal().add_(variance)
    gain = half.T / inner if len(inner) == 1 else torch.cholesky_solve(half, torch.linalg.cholesky_ex(inner)[0]).T
    mean = prior.mean + gain @ (target - features @ prior.mean)
    covariance = prior.covariance - gain @ half
    return Weights(mean, (covariance + covariance.T) / 2)


def cholesky(matrix: Float[Tensor, "*batch N N"]) -> Float[Tensor, "*batch N N"]:
    """Return the lower factor L of symmetric positive definite matrices L L^T, without checks.

    On a GPU small matrices are factorised column by column, all at once: the libraries' factorisations cannot be
    captured in a CUDA graph.

    Source: Golub and Van Loan 2013, Matrix Computations, algorithm 4.2.2 (outer products).
    """
    if matrix.is_cuda and matrix.shape[-1] <= LARGEST_UNROLLED:
        return cholesky_by_columns(matrix)
    factor: Tensor = torch.linalg.cholesky_ex(matrix)[0]
    return factor


def cholesky_by_columns(matrix: Float[Tensor, "*batch N N"]) -> Float[Tensor, "*batch N N"]:
    """Return the factor of `cholesky`, computed as on a GPU."""
    rest, columns = matrix, []
    for j in range(matrix.shape[-1]):
        column = rest[..., :, j] * rest[..., j, j].rsqrt().unsqueeze(-1)
        columns.append(column)
        rest = rest - column.unsqueeze(-1) * column.unsqueeze(-2)
    return torch.stack(columns, -1).tril()


def posterior_from_sums(precision: Matrix, moment: Float[Tensor, "P D"]) -> Weights:
    """Return the posterior from its sums.

    precision = S_0^-1 + sum phi phi^T / variance,   moment = sum phi y^T / variance

    Equals any number of `posterior_update` calls, without their rounding.
    """
    factor = torch.linalg.cholesky_ex(precision)[0]
    return Weights(torch.cholesky_solve(moment, factor), torch.cholesky_inverse(factor))


def information_gain(
    features: Float[Tensor, "*paths H P"], covariance: Matrix, *, variance: float | Tensor, outputs: int
) -> Float[Tensor, "*paths H"]:
    """Compute what each step of a path adds to the information about a linear layer's weights; never negative.

    sum_t gain_t = outputs * log det(I_H + Phi S Phi^T / variance)

    This is twice the mutual information (in nats) between the weights and the observations on the path. By the chain
    rule gain_t is the log of the t-th pivot of the Cholesky factorisation: H x H, whatever the number of weights.

    Args:
        features: Phi of the states of a path.
        covariance: S of the weights of one output.
        variance: of the observation noise.
        outputs: D, number of outputs that share the features.

    Source: Lindley 1956; for Gaussian linear models MacKay 1992, "Information-based objective functions for active
    data selection", eq. 4.6.
    """
    inner = (features @ covariance) @ features.transpose(-1, -2) / variance
    inner.diagonal(dim1=-2, dim2=-1).add_(1)
    pivots: Tensor = cholesky(inner).diagonal(dim1=-2, dim2=-1)
    return 2 * outputs * pivots.clamp(min=1).log()


def disagreement(predictions: Float[Tensor, "E *paths H D"], variance: Float[Tensor, "D"]) -> Float[Tensor, "*paths H"]:
    """Compute the variance over the members of an ensemble, in units of the process noise; mean over dimensions.

    Source: Pathak et al. 2019, arXiv:1906.04161, eq. 1, and Sekar et al. 2020, arXiv:2005.05960, eq. 3. The division by
    the noise is an addition: without it the dimension of the largest scale dominates.
    """
    return (predictions.var(0, correction=0) / variance).mean(-1)


def optimistic_gain(
    predictions: Float[Tensor, "E *paths H D"], variance: Float[Tensor, "D"]
) -> Float[Tensor, "*paths H"]:
    """Compute OPAX's reward: sum_d log(1 + epistemic variance_d / aleatoric variance_d).

    Source: Sukhija et al. 2023, arXiv:2306.12371, eq. 9.
    """
    return torch.log1p(predictions.var(0, correction=0) / variance).sum(-1)


def distillation_error(
    predicted: Float[Tensor, "*paths H F"], target: Float[Tensor, "*paths H F"]
) -> Float[Tensor, "*paths H"]:
    """Compute the mean squared error of a predictor of a random network's outputs (random network distillation).

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
    """Compute the whitened sensitivities of a path's observations to Q parameters theta.

    G <- F_t G + F_theta,   P <- F_t P F_t^T + Q,   S = H P H^T + R,   row_t = S^{-1/2} H G,   K = P H^T S^{-1}
    G <- (I - K H) G,   P <- (I - K H) P (I - K H)^T + K R K^T

    Both are conditioned on the earlier observations of the path, as in a Kalman filter: rows are the sensitivities of
    its innovations. So the Fisher information of the first t steps, J_t = rows^T rows, is that of their observations
    taken together, whose noise is correlated through the state. Rows are not multiplied out, because H O is far smaller
    than Q where theta are a layer's weights.

    Args:
        by_state: F = dz'/dz at each step.
        by_weights: F_theta = dz'/dtheta.
        observed_by: H = dy/dz at the state that each step leads to.
        process_noise: Q, the variances of one step.
        observation_noise: R, the variances of an observation.
        uncertainty: P_0, the covariance of the path's first state; G_0 is 0.

    Source: the sensitivity recursion of Gupta & Mehra 1974, "Computational aspects of maximum likelihood
    estimation and reduction in sensitivity function calculations"; that later innovations depend on theta through P too
    is left out. The update of P is Joseph's form: Bucy & Joseph 1968, positive in float32 too.
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
    """Compute what each of the `steps` adds to log det(I + prior J), twice the information in nats; never negative.

    Args:
        rows: whitened sensitivities, J = rows^T rows.
        prior: covariance of theta, or of each of Q / P equal blocks of it, such as the outputs of a layer.

    Source: Lindley 1956; Pukelsheim 2006, Optimal Design of Experiments, chapter 6, with the rows' Gram matrix for
        J.
    """
    pivots: Tensor = _posterior_root(rows, prior)[0].diagonal(dim1=-2, dim2=-1)
    gain: Tensor = 2 * pivots.clamp(min=1).log().unflatten(-1, (steps, -1)).sum(-1)
    return gain


def a_optimality(
    rows: Float[Tensor, "*paths HO Q"], prior: Float[Tensor, "P P"], *, steps: int
) -> Float[Tensor, "*paths H"]:
    """Compute the decrease of tr((prior^-1 + J)^-1), the total variance of theta, at each of the `steps`; at least 0.

    Args: as for `d_optimality`.

    Source: Pukelsheim 2006, Optimal Design of Experiments, chapter 6.
    """
    root, half = _posterior_root(rows, prior)
    explained: Tensor = torch.linalg.solve_triangular(root, half, upper=False).square().sum(-1)
    lowered: Tensor = explained.unflatten(-1, (steps, -1)).sum(-1)
    return lowered


def _posterior_root(rows: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
    """Return the Cholesky factor of I + rows P rows^T, and rows P."""
    half = (rows.unflatten(-1, (-1, prior.shape[-1])) @ prior).flatten(-2)
    inner = half @ rows.transpose(-1, -2)
    inner.diagonal(dim1=-2, dim2=-1).add_(1)
    return cholesky(inner), half
