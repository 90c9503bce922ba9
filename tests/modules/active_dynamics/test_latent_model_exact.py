"""A model that is linear and normal throughout, where the evidence is known: its bound is a bound, and how tight."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal
from torch.nn import functional as F

from modules.active_dynamics.latent_model import Draws, LatentModel
from modules.functional.dynamics.elbo import StatePosterior
from modules.networks.latent import LinearActions, LinearDecoder, LinearDynamics, MLPEncoder

STEPS, SIZE, SEEN, PUSHES = 12, 2, 3, 1
ROWS = STEPS + 1


class Free(nn.Module):
    """An encoder that looks at nothing: every row of the only sequence has moments of its own."""

    causal, window = True, 1

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(ROWS, 1, SIZE))
        self.raw = nn.Parameter(torch.zeros(ROWS, 1, SIZE))

    def forward(self, obs: Tensor, begins: Tensor) -> tuple[Tensor, Tensor]:
        return self.mean, self.raw.exp()


def linear_model(overshooting_steps: int = 1, encoder: nn.Module | None = None) -> LatentModel:
    """A slow rotation, pushed, seen in three noisy dimensions; float64."""
    decoder = LinearDecoder(SEEN, SIZE, noise=0.5)
    dynamics = LinearDynamics(SIZE, dt=0.5, noise=0.6)
    parts = (encoder or Free(), decoder, dynamics, LinearActions(PUSHES, SIZE))
    model = LatentModel(*parts, overshooting_steps=overshooting_steps, mask_prob=0.0).double()
    with torch.no_grad():
        dynamics.weight.copy_(torch.tensor([[-0.3, 1.0], [-1.0, -0.3], [0.2, 0.1]]))
        decoder.linear.weight.copy_(torch.tensor([[1.0, 0.5], [-0.4, 0.8], [0.3, -1.0]]))
        decoder.linear.bias.copy_(torch.tensor([0.1, -0.2, 0.0]))
    return model


def prior(model: LatentModel, control: Tensor) -> tuple[Tensor, Tensor]:
    """Mean `[R]` and covariance `[R, R]` of all states, R = rows x D: what follows from z_1 and the noise, stacked."""
    zero, dynamics = torch.zeros(SIZE, dtype=torch.float64), model.dynamics
    forward = dynamics.jacobian(zero, zero)
    means, maps = [zero], [torch.eye(SIZE, ROWS * SIZE, dtype=torch.float64)]
    for t in range(STEPS):
        means.append(dynamics.step(means[-1], control[t, 0]))
        fresh = torch.zeros(SIZE, ROWS * SIZE, dtype=torch.float64)
        fresh[:, (t + 1) * SIZE : (t + 2) * SIZE] = dynamics.variance.sqrt().diag()
        maps.append(forward @ maps[-1] + fresh)
    whole = torch.cat(maps)
    return torch.cat(means), whole @ whole.T


@torch.no_grad()
def case(model: LatentModel) -> tuple[Tensor, Tensor, Tensor, StatePosterior]:
    """Observations, actions, their exact log-evidence, and the best posterior with independent dimensions.

    Of a normal with precision P the best such approximation has the same mean, and variances 1 / P_ii (Bishop 2006,
    section 10.1.2).
    """
    torch.manual_seed(3)
    action = torch.randn(STEPS, 1, PUSHES, dtype=torch.float64)
    mean, covariance = prior(model, model.action_encoder(action))
    shown = torch.block_diag(*[model.decoder.linear.weight] * ROWS)
    noise = model.decoder.variance.repeat(ROWS)
    evidence = MultivariateNormal(
        shown @ mean + model.decoder.linear.bias.repeat(ROWS), shown @ covariance @ shown.T + noise.diag()
    )
    obs = evidence.sample()
    precision = covariance.inverse() + shown.T @ (shown / noise.unsqueeze(1))
    away = obs - evidence.mean
    centre = mean + torch.linalg.solve(precision, shown.T @ (away / noise))
    best = StatePosterior(*(part.view(ROWS, 1, SIZE) for part in (centre, 1 / precision.diagonal())))
    gap = 0.5 * (precision.diagonal().log().sum() - precision.logdet())
    return obs.view(ROWS, 1, SEEN), action, torch.stack([evidence.log_prob(obs), gap]), best


def sigma_points(horizon: int) -> Draws:
    """Draws whose mean over samples is the expectation of anything quadratic, exactly: +-sqrt(n) along n axes."""
    axes = SIZE * horizon
    points = math.sqrt(axes) * torch.cat([torch.eye(axes), -torch.eye(axes)]).double()
    states, *later = points.view(-1, horizon, 1, 1, SIZE).unbind(1)
    paths = [each.expand(-1, STEPS, -1, -1) for each in later]
    stacked = torch.stack(paths) if paths else states.new_zeros(0, len(points), STEPS, 1, SIZE)
    return Draws(states.expand(-1, ROWS, -1, -1), torch.zeros(1), stacked, torch.ones(ROWS, 1))


def bound(model: LatentModel, obs: Tensor, action: Tensor) -> Tensor:
    """In nats, of the whole sequence."""
    contiguous = torch.ones(STEPS, 1, dtype=torch.bool)
    return -ROWS * model.loss(obs, action, contiguous, sigma_points(len(model.weights)))[0]


def test_the_bound_at_the_best_posterior_is_the_evidence_less_their_divergence() -> None:
    model = linear_model()
    obs, action, (evidence, gap), best = case(model)

    with torch.no_grad():
        model.encoder.mean.copy_(best.mean)
        model.encoder.raw.copy_(best.variance.log())

    assert gap > 0.1
    torch.testing.assert_close(bound(model, obs, action), evidence - gap, rtol=1e-9, atol=1e-9)


def test_the_bound_is_below_the_evidence_whatever_the_posterior_and_the_horizon() -> None:
    model, further = linear_model(), linear_model(overshooting_steps=3)
    obs, action, (evidence, gap), best = case(model)

    for seed in range(5):
        torch.manual_seed(seed)
        away = 0.2 * torch.randn(2, ROWS, 1, SIZE, dtype=torch.float64)
        for each in (model, further):
            each.encoder.mean.data = best.mean + away[0]
            each.encoder.raw.data = best.variance.log() + away[1]
        assert bound(further, obs, action) < bound(model, obs, action) < evidence - gap


@pytest.mark.parametrize("free", [True, False])
def test_a_trained_encoder_comes_within_a_hundredth_of_a_nat_a_step_of_the_best(free: bool) -> None:
    """The best that independent dimensions can be, also by an encoder that sees one observation at a time."""
    torch.manual_seed(0)
    encoder = Free() if free else MLPEncoder(SEEN, SIZE)
    model = linear_model(encoder=encoder)
    obs, action, (evidence, gap), _ = case(model)
    optimizer = torch.optim.LBFGS(encoder.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = -bound(model, obs, action)
        loss.backward()
        return loss

    optimizer.step(closure)

    assert 0 <= evidence - gap - bound(model, obs, action) < 0.01 * STEPS


def test_process_noise_is_the_same_in_what_is_drawn_and_in_what_is_compared() -> None:
    """Both take the variance of one step, dt softplus(q) with its floor."""
    dynamics = linear_model().dynamics

    expected = dynamics.dt * (F.softplus(dynamics.raw_noise) + 1e-4)

    torch.testing.assert_close(dynamics.variance, expected)
    torch.testing.assert_close(dynamics.variance, torch.full((SIZE,), 0.5 * 0.6**2, dtype=torch.float64))
