"""The latent model: what each of its options does, what masks keep out, and that no part keeps older weights."""

from typing import Any

import pytest
import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from modules.active_dynamics.latent_model import Draws, LatentModel
from modules.networks.latent import Ensemble, GRUEncoder, LinearActions, LinearDecoder, MLPDynamics, MLPEncoder

STEPS, ROWS, SEEN = 8, 3, 4


def small_model(**changes: Any) -> LatentModel:
    """Two latent dimensions behind four observed ones."""
    torch.manual_seed(0)
    parts = {"encoder": MLPEncoder(SEEN, 2, hidden=(8,)), "decoder": LinearDecoder(SEEN, 2), "overshooting_steps": 3}
    parts |= {"dynamics": MLPDynamics(2, hidden=(8,), dt=0.1), "action_encoder": LinearActions(1, 2), "samples": 2}
    return LatentModel(**{**parts, **changes})


def pieces(counts: bool = False) -> dict[str, Tensor]:
    """Observations, actions, and steps that all count."""
    generator = torch.Generator().manual_seed(1)
    obs, action = (torch.randn(*shape, generator=generator) for shape in ((STEPS + 1, ROWS, SEEN), (STEPS, ROWS, 1)))
    return {"obs": obs.abs().round() if counts else obs, "action": action, "contiguous": torch.ones(STEPS, ROWS).bool()}


def drawn(model: LatentModel, contiguous: Tensor, seed: int = 2) -> Draws:
    return model.draws(contiguous, torch.Generator().manual_seed(seed))


def loss(model: LatentModel, seed: int = 2, **changes: Tensor) -> Tensor:
    given = pieces() | changes
    return model.loss(**given, draws=drawn(model, given["contiguous"], seed))[0]


def gradient(model: LatentModel, **changes: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss(model, **changes), list(model.parameters()), materialize_grads=True))


def test_the_loss_is_the_bound_in_nats_a_row_and_its_parts_are_measured() -> None:
    model, given = small_model(), pieces()
    model.update_schedules(0.1)

    value, (likelihood, divergence, beta) = model.loss(**given, draws=drawn(model, given["contiguous"]))
    terms = model.terms(**given, draws=drawn(model, given["contiguous"]))

    assert float(beta) == 0.5 and int(terms.rows) == (STEPS + 1) * ROWS
    torch.testing.assert_close(likelihood * terms.rows, terms.log_likelihood)
    torch.testing.assert_close(divergence * terms.rows, terms.initial + terms.transition)
    torch.testing.assert_close(-value * terms.rows, terms.log_likelihood - terms.initial - 0.5 * terms.transition)


def test_hiding_nothing_is_the_model_without_hiding_bit_for_bit() -> None:
    """While beta warms up nothing is hidden either."""
    never, warm = small_model(mask_prob=0.0), small_model(mask_prob=0.5)
    never.update_schedules(0.1)
    warm.update_schedules(0.1)

    assert torch.equal(loss(never), loss(warm))
    assert all(torch.equal(a, b) for a, b in zip(gradient(never), gradient(warm), strict=True))
    warm.update_schedules(0.5)
    never.update_schedules(0.5)
    assert not torch.equal(loss(never), loss(warm))


@pytest.mark.parametrize(
    "option",
    [{"samples": 3}, {"overshooting_steps": 2}, {"kl_decay": 0.5}, {"mask_prob": 0.6}, {"mask_with_mean": True}],
    ids=lambda option: next(iter(option)),
)
def test_options_of_the_bound_act(option: dict[str, Any]) -> None:
    assert not torch.equal(loss(small_model(mask_prob=0.4)), loss(small_model(**{"mask_prob": 0.4, **option})))


def test_detached_priors_change_what_is_learned_and_not_the_loss() -> None:
    models = [small_model(detach_multi_step=detach) for detach in (False, True)]

    assert torch.equal(*(loss(model) for model in models))
    learned, detached = (torch.cat([each.flatten() for each in gradient(model)]) for model in models)
    assert not torch.equal(learned, detached)


@pytest.mark.parametrize(
    ("options", "progress", "beta"),
    [
        ({}, 0.0, 0.0), ({}, 0.05, 0.25), ({}, 0.2, 1.0), ({}, 1.0, 1.0), ({"warm_up": 0.0}, 0.0, 1.0),
        ({"cycles": 2}, 0.3, 1.0), ({"cycles": 2}, 0.5, 0.0), ({"cycles": 2}, 0.55, 0.5), ({"cycles": 2}, 1.0, 1.0),
    ],
)  # fmt: skip
def test_beta_warms_up_once_or_in_cycles_and_only_then_rows_are_hidden(
    options: dict[str, Any], progress: float, beta: float
) -> None:
    model = small_model(mask_prob=0.3, **options)

    model.update_schedules(progress)

    assert float(model.beta) == pytest.approx(beta)
    assert float(model.hidden) == pytest.approx(0.3 if beta == 1 else 0.0)


def test_what_does_not_count_changes_nothing() -> None:
    """An encoder that remembers, rows that no step touches, and a step that joins nothing."""
    model, contiguous = small_model(encoder=GRUEncoder(SEEN, 2, hidden=8)), torch.ones(STEPS, ROWS).bool()
    contiguous[:3, 0] = contiguous[4, 1] = contiguous[5:, 2] = False
    obs, action = pieces()["obs"].clone(), pieces()["action"].clone()
    obs[:3, 0], obs[6:, 2] = 50.0, -50.0
    action[:3, 0] = action[4, 1] = action[5:, 2] = 70.0

    kept, changed = loss(model, contiguous=contiguous), loss(model, obs=obs, action=action, contiguous=contiguous)

    torch.testing.assert_close(kept, changed, rtol=1e-6, atol=1e-6)
    assert all(part.isfinite().all() for part in gradient(model, contiguous=torch.zeros(STEPS, ROWS).bool()))


def test_a_loss_can_be_differentiated_again_and_follows_its_noise() -> None:
    """No variance, weight or mask is kept from the call before."""
    model = small_model()
    first, second = gradient(model), gradient(model)

    with torch.no_grad():
        model.dynamics.raw_noise.add_(1.0)

    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(gradient(model)[0], first[0])
    assert loss(model.to(torch.float64), **{k: v.double() for k, v in pieces().items() if k != "contiguous"}).dtype == (
        torch.float64
    )


def test_randomness_comes_from_the_generator_alone() -> None:
    model, contiguous = small_model(), pieces()["contiguous"]
    before = torch.get_rng_state()

    one, same, other = (drawn(model, contiguous, seed) for seed in (2, 2, 3))

    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    loss(model)
    assert torch.equal(torch.get_rng_state(), before)


def test_every_member_of_an_ensemble_learns_for_itself() -> None:
    model = small_model(dynamics=Ensemble(2, count=3, hidden=(8,), dt=0.1), mask_prob=0.0)

    loss(model).backward()

    gradients = [each.weight.grad for each in model.dynamics.models]
    assert not torch.equal(gradients[0], gradients[1]) and all(each.any() for each in gradients)


def test_the_decoder_begins_with_what_is_seen_on_average() -> None:
    model, given = small_model(decoder=LinearDecoder(SEEN, 2, counts=True)), pieces(counts=True)
    counts = torch.zeros(STEPS + 1, ROWS).bool()
    counts[2:5] = True

    model.init_bias_(given["obs"], counts)

    expected = given["obs"][2:5].mean((0, 1)).clamp(min=1e-3)
    torch.testing.assert_close(model.decode(torch.zeros(2)), expected)
    model.init_bias_(given["obs"] + 9, torch.zeros_like(counts))
    torch.testing.assert_close(model.decode(torch.zeros(2)), expected)


def test_counts_are_learned_from_with_a_finite_gradient() -> None:
    model = small_model(encoder=MLPEncoder(SEEN, 2, counts=True), decoder=LinearDecoder(SEEN, 2, counts=True))

    assert all(part.isfinite().all() for part in gradient(model, obs=pieces(counts=True)["obs"]))


def test_pieces_shorter_than_the_horizon_are_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"overshooting_steps is 9, but sequences have 8 steps: raise data\.sequence_length"
    ):
        drawn(small_model(overshooting_steps=9), pieces()["contiguous"])


@pytest.mark.parametrize(
    "changes",
    [{"samples": 0}, {"cycles": 0}, {"mask_prob": 1.0}, {"mask_prob": -0.1}, {"warm_up": 1.5}, {"warm_up": -0.1}],
)
def test_impossible_values_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="LatentModel cannot have"):
        small_model(**changes)
