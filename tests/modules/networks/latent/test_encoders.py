"""Encoders: narrow at first, as causal as they say, and never across the beginning of another trajectory."""

import pytest
import torch
from torch import Tensor, nn

from modules.networks.latent import GRUEncoder, MLPEncoder

KINDS = {
    "mlp": lambda **changes: MLPEncoder(5, 2, **changes),
    "gru": lambda **changes: GRUEncoder(5, 2, hidden=8, **changes),
    "both": lambda **changes: GRUEncoder(5, 2, hidden=8, bidirectional=True, **changes),
}
every = pytest.mark.parametrize("kind", KINDS)


def made(kind: str, **changes: object) -> nn.Module:
    torch.manual_seed(0)
    model = KINDS[kind](**changes).double()
    nn.init.normal_(model.raw_variance.weight)
    return model


def seen(steps: int = 7) -> Tensor:
    return torch.randn(steps, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@every
def test_at_first_every_posterior_is_as_narrow_as_any_other(kind: str) -> None:
    mean, variance = KINDS[kind]()(seen().float())

    assert mean.shape == variance.shape == (7, 3, 2) and mean.std() > 0
    torch.testing.assert_close(variance, torch.full_like(variance, 0.0485873 + 1e-6))


@every
def test_variances_stay_positive(kind: str) -> None:
    model = made(kind)
    nn.init.constant_(model.raw_variance.bias, -1e3)

    assert (model(seen())[1] >= 1e-6).all()


@every
def test_a_causal_encoder_knows_nothing_of_what_comes(kind: str) -> None:
    model, obs = made(kind), seen()
    later = torch.cat([obs[:4], obs[4:] + 1])

    same = [torch.equal(a[:4], b[:4]) for a, b in zip(model(obs), model(later), strict=True)]

    assert same == [model.causal, model.causal]
    assert model.causal == (kind != "both")


@every
def test_the_newest_posterior_follows_from_the_window(kind: str) -> None:
    model, obs = made(kind), seen()
    window = min(model.window, len(obs))

    torch.testing.assert_close(model(obs[-window:])[0][-1], model(obs)[0][-1])


@every
def test_trajectories_in_one_sequence_are_encoded_as_if_each_stood_alone(kind: str) -> None:
    model, obs = made(kind), seen()
    begins = torch.zeros(7, 3, dtype=torch.bool)
    begins[0], begins[4, 1] = True, True

    together = model(obs, begins)

    for t in (slice(0, 4), slice(4, 7)):
        alone = model(obs[t, 1:2])
        for whole, part in zip(together, alone, strict=True):
            torch.testing.assert_close(whole[t, 1:2], part)
    torch.testing.assert_close(together[0][:, ::2], model(obs)[0][:, ::2])


@every
def test_counts_are_encoded_by_their_logarithm(kind: str) -> None:
    counts = torch.randint(0, 9, (4, 3, 5)).double()

    torch.testing.assert_close(made(kind, counts=True)(counts), made(kind)((counts + 1).log()))


@every
def test_observations_stay_as_they_are(kind: str) -> None:
    obs = seen().abs()
    before = obs.clone()

    for part in made(kind, counts=True)(obs):
        part.detach().zero_()

    assert torch.equal(obs, before)


def test_without_layers_an_encoder_is_linear() -> None:
    model = MLPEncoder(5, 2, hidden=())

    torch.testing.assert_close(model(seen().float())[0], model.mean(seen().float()))


def test_a_window_is_what_an_agent_keeps() -> None:
    assert [MLPEncoder(5).window, GRUEncoder(5).window, GRUEncoder(5, window=7).window] == [1, 20, 7]


@pytest.mark.parametrize(
    "wrong", [lambda: MLPEncoder(5, 0), lambda: GRUEncoder(5, window=0), lambda: GRUEncoder(5, hidden=0)]
)
def test_numbers_out_of_range_are_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        wrong()
