"""Decoders: likelihoods are torch's, sensitivities autograd's, and what is known stays known."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, Poisson

from modules.networks.latent import IdentityDecoder, LinearDecoder, MLPDecoder

KINDS = {
    "identity": lambda: IdentityDecoder(2),
    "linear": lambda: LinearDecoder(4, 2),
    "mlp": lambda: MLPDecoder(4, 2, hidden=(8, 8)),
    "log-linear": lambda: LinearDecoder(4, 2, counts=True),
    "mlp of counts": lambda: MLPDecoder(4, 2, counts=True),
}
every = pytest.mark.parametrize("kind", KINDS)
normal = pytest.mark.parametrize("kind", ["identity", "linear", "mlp"])
counted = pytest.mark.parametrize("kind", ["log-linear", "mlp of counts"])
learned = pytest.mark.parametrize("kind", ["linear", "mlp", "log-linear", "mlp of counts"])


def made(kind: str) -> nn.Module:
    torch.manual_seed(0)
    model = KINDS[kind]().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model


def states() -> Tensor:
    return torch.randn(3, 5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@normal
def test_the_likelihood_of_normal_observations_is_torchs(kind: str) -> None:
    model, latent = made(kind), states()
    obs = torch.randn(6, 3, 5, model.observed, dtype=torch.float64)

    expected = Normal(model(latent), model.variance.sqrt()).log_prob(obs).sum(-1)

    torch.testing.assert_close(model.log_likelihood(latent, obs), expected)


@counted
def test_the_likelihood_of_counts_is_torchs(kind: str) -> None:
    model, latent = made(kind), states()
    obs = torch.randint(0, 9, (6, 3, 5, 4)).double()

    torch.testing.assert_close(model.log_likelihood(latent, obs), Poisson(model(latent)).log_prob(obs).sum(-1))


@every
def test_sensitivity_is_the_derivative_of_what_is_expected(kind: str) -> None:
    model, latent = made(kind), states()

    found, variance = model.sensitivity(latent)

    rows = [torch.autograd.functional.jacobian(model, row) for row in latent.view(-1, 2)]
    torch.testing.assert_close(found, torch.stack(rows).view(3, 5, model.observed, 2))
    torch.testing.assert_close(variance, model(latent) if model.counts else model.variance.expand(3, 5, -1))


@every
def test_evaluation_asks_for_sensitivities_too(kind: str) -> None:
    model, latent = made(kind), states()
    expected = model.sensitivity(latent)

    with torch.inference_mode():
        found = model.sensitivity(latent)

    torch.testing.assert_close(found, expected)


def test_rates_have_a_largest_one_and_are_insensitive_there() -> None:
    model = LinearDecoder(1, 1, counts=True, weight=[[1.0]])
    latent = torch.tensor([[100.0], [-1000.0]])

    slope, variance = model.sensitivity(latent)

    assert model(latent)[0].item() == pytest.approx(math.exp(8))
    assert not slope.any() and (variance > 0).all()
    assert model.log_likelihood(latent, torch.tensor([[3.0], [0.0]])).isfinite().all()


@learned
def test_the_state_zero_shows_the_mean_of_what_was_seen_first(kind: str) -> None:
    model = made(kind)
    obs = torch.randint(0, 9, (7, 2, 4)).double()

    model.init_bias_(obs)
    model.init_bias_(obs)

    torch.testing.assert_close(model(torch.zeros(2, dtype=torch.float64)), obs.mean((0, 1)))


def test_what_is_never_counted_begins_with_a_small_rate() -> None:
    model = LinearDecoder(3, 2, counts=True)

    model.init_bias_(torch.zeros(5, 3))

    torch.testing.assert_close(model(torch.zeros(2)), torch.full((3,), 1e-3))


def test_a_linear_decoder_begins_small() -> None:
    torch.manual_seed(0)

    assert LinearDecoder(2000, 4).linear.weight.std().item() == pytest.approx(0.05, rel=0.05)


def test_a_known_weight_and_bias_stay_as_they_are() -> None:
    model = LinearDecoder(3, 2, weight=[[1, 0], [0, 1], [1, 1]], bias=[0, 0, 1])

    model.init_bias_(torch.full((5, 3), 9.0))

    assert [name for name, part in model.named_parameters() if part.requires_grad] == ["raw_noise"]
    assert model(torch.tensor([2.0, 3.0])).tolist() == [2.0, 3.0, 6.0]
    assert LinearDecoder(1, 2, weight=[[1.0, 2.0]])(torch.tensor([2.0, 3.0])).tolist() == [8.0]


@pytest.mark.parametrize("noise", [0.02, 0.2, 50.0])
def test_the_noise_is_at_first_what_was_asked_for(noise: float) -> None:
    torch.testing.assert_close(LinearDecoder(3, 2, noise=noise).variance, torch.full((3,), noise**2))


def test_every_dimension_learns_its_own_noise_up_or_down() -> None:
    model, latent = LinearDecoder(3, 2, noise=1.0).double(), torch.zeros(2, dtype=torch.float64)
    errors = torch.tensor([0.1, 1.0, 3.0], dtype=torch.float64)

    model.log_likelihood(latent, model(latent).detach() + errors).backward()

    gradient = model.raw_noise.grad
    assert gradient[0] < -0.1 and gradient[2] > 0.1 and gradient[1].abs() < 1e-6


@every
def test_states_and_observations_stay_as_they_are(kind: str) -> None:
    model, latent = made(kind), states()
    obs, before = torch.ones(3, 5, model.observed, dtype=torch.float64), latent.clone()

    model.log_likelihood(latent, obs)
    model.sensitivity(latent)
    model.init_bias_(obs)

    assert torch.equal(latent, before) and (obs == 1).all()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: LinearDecoder(0, 2), "must be at least 1"),
        (lambda: MLPDecoder(4, 0), "must be at least 1"),
        (lambda: IdentityDecoder(2, noise=0.01), "more than 0.01"),
        (lambda: LinearDecoder(2, 2, weight=[[1.0, 0.0]]), "2 rows of 2 numbers"),
        (lambda: LinearDecoder(1, 2, weight=[[1.0, 0.0]], bias=[]), "bias 1 numbers"),
        (lambda: LinearDecoder(1, 2, bias=[0.0]), "give both"),
        (lambda: LinearDecoder(1, 2, counts=True).init_bias_(torch.tensor([[-0.5]])), "-0.5 was observed"),
    ],
)
def test_what_cannot_be_is_refused(wrong: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        wrong()
