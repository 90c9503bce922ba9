"""PPO's gradients written out are those of autograd, and made only where they can be."""

import copy
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import lightning
import pytest
import torch
from torch import Tensor
from torch.optim import Adam

from datamodules.core.types import Rollout, Spaces
from datamodules.rollout import RolloutData
from modules.manual_backward.ppo import WrittenOut
from modules.networks import MLP
from modules.optim.optimizer_group import Optimizers
from modules.ppo.batch import PPOBatch
from modules.ppo.ppo import PPO
from tests.support.small_runs import Told, cartpole_data, small_ppo, snake_data, trainer

RELU = partial(MLP, hidden=(33, 17), activation="relu")


def made(**settings: Any) -> PPO:
    torch.manual_seed(0)
    spaces = Spaces(
        obs_shape=(2, 3), obs_dtype="float32", action_kind="discrete", action_sizes=[4], action_low=[], action_high=[],
        action_start=[0], agents=1,
    )  # fmt: skip
    model = PPO(spaces, **settings)
    model.optimization, model.clip_now = Optimizers(model.make_optimizers()), torch.tensor(model.clip)
    torch.nn.init.normal_(model.actor.linear.weight)
    return model


def transitions(**changes: Any) -> PPOBatch:
    """Fifty of them, with ratios and values on both sides of the clips."""
    generator = torch.Generator().manual_seed(1)
    draw = partial(torch.randn, 50, generator=generator)
    action, obs = torch.randint(4, (50,), generator=generator), torch.randn(50, 2, 3, generator=generator)
    columns = {"log_prob": draw() - 1, "value": draw(), "advantage": draw(), "target": draw()}
    nothing = {"valid": None, "mask": None, "reset": None, "state": {}}
    return PPOBatch(**{"obs": obs, "action": action, **columns, **nothing, **changes})


def gradients(model: PPO, batch: PPOBatch, written_out: bool) -> tuple[Tensor, Tensor]:
    flat = model.optimization.flat[model.raw_optimizers[0]]
    flat.gradient.zero_()
    if written_out:
        return WrittenOut(model).differentiate_(batch), flat.gradient.clone()
    loss, measures = model.loss(batch)
    flat.receive_(torch.autograd.grad(loss, flat.parameters))
    return measures, flat.gradient.clone()


VALID = torch.arange(50) % 3 > 0
MASK = torch.arange(200).view(50, 4) % 5 > 0


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ({"network": RELU, "shared": True, "entropy_weight": 0.1}, {}),
        ({"value_weight": 0.3, "value_clip": 0.2}, {}),
        ({"network": partial(RELU, scale=0.1)}, {"obs": torch.arange(300).view(50, 2, 3).byte()}),
        ({"shared": True, "entropy_weight": 0.1}, {"valid": VALID}),
        ({"entropy_weight": 0.1}, {"mask": MASK, "action": MASK.int().argmax(1)}),
        ({"normalize_obs": True}, {}),
    ],
    ids=["shared relu", "separate tanh", "scaled bytes", "phantoms", "masked", "normalised"],
)
def test_gradients_and_measures_are_those_of_autograd(settings: dict[str, Any], changes: dict[str, Any]) -> None:
    model, batch = made(**settings), transitions(**changes)
    if model.obs_normalizer is not None:
        model.obs_normalizer.update_(3 * batch.obs + 1)

    expected, found = (gradients(model, batch, written_out) for written_out in (False, True))

    assert found[1].abs().max() > 0.01
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


def test_room_kept_for_one_size_of_minibatch_serves_another() -> None:
    model, batch = made(network=RELU), transitions()
    written_out, flat = WrittenOut(model), model.optimization.flat[model.raw_optimizers[0]]
    written_out.differentiate_(batch)

    written_out.differentiate_(batch.part(slice(0, 20)))

    torch.testing.assert_close(
        flat.gradient, gradients(model, batch.part(slice(0, 20)), False)[1], rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize(
    ("settings", "mask"),
    [({}, None), ({"shared": True, "network": RELU, "normalize_obs": True}, MASK)],
    ids=["separate tanh", "shared relu, masked"],
)
def test_decisions_and_values_are_those_of_the_modules(settings: dict[str, Any], mask: Tensor | None) -> None:
    model, obs = made(**settings), transitions().obs
    noise, reset = torch.randn(50, 4), torch.zeros(50, dtype=torch.bool)
    rollout = SimpleNamespace(obs=obs.unflatten(0, (10, 5)), extras={})

    def found() -> list[Tensor]:
        decision, _ = model.act(obs, {}, reset, mask=mask, noise=noise)
        return [decision.action, *decision.extras.values(), model.values(cast(Rollout, rollout))[0]]

    with torch.no_grad():
        expected = found()
        model.written_out = WrittenOut(model)
        torch.testing.assert_close(found(), expected)


class Plain(PPO):
    """Another class, which may have another loss."""


def run(root: Path, data: RolloutData, kind: type[PPO] = PPO, **settings: Any) -> tuple[PPO, bool]:
    """What was trained, and whether by the short way."""
    told = Told()
    lightning.seed_everything(1, verbose=False)
    model = kind(data.spaces, **{"passes": 2, "minibatches": 4, "learning_rate": 1e-3, **settings})
    trainer(root, told).fit(model, datamodule=data)
    return model, told.written_out


@pytest.mark.parametrize("data", [snake_data, partial(cartpole_data, backend="vector", num_envs=16)])
def test_a_run_takes_the_short_way_and_ends_with_the_weights_of_the_long_one(tmp_path: Path, data: Any) -> None:
    settings = {"normalize_obs": True, "entropy_weight": 0.01}

    (short, way), (graph, other) = (run(tmp_path, data(), kind, **settings) for kind in (PPO, Plain))

    assert (way, other) == (True, False)
    torch.testing.assert_close([*short.parameters()], [*graph.parameters()], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"network": partial(MLP, hidden=(8,), activation="elu")},
        {"network": partial(MLP, hidden=(8,), layer_norm=True)},
        {"optimizer": lambda params: Adam([{"params": [each]} for each in params])},
    ],
    ids=["elu", "layer norm", "groups of parameters"],
)
def test_what_it_does_not_know_goes_the_long_way(tmp_path: Path, settings: dict[str, Any]) -> None:
    _, short = run(tmp_path, cartpole_data(total_env_steps=64), **settings)

    assert not short


def test_whoever_listens_to_a_layer_hears_the_updates(tmp_path: Path) -> None:
    told, data, heard = Told(), cartpole_data(total_env_steps=64), list[int]()
    model = small_ppo(data)
    model.critic.register_forward_hook(lambda _, inputs, output: heard.append(output.requires_grad))

    trainer(tmp_path, told).fit(model, datamodule=data)

    assert any(heard) and not told.written_out


def test_a_copy_and_what_was_moved_decide_by_their_own_parameters() -> None:
    model, obs = made(), transitions().obs
    noise, reset = torch.randn(50, 4), torch.zeros(50, dtype=torch.bool)
    model.written_out = WrittenOut(model)

    copied = copy.deepcopy(model)
    with torch.no_grad():
        torch.nn.init.normal_(copied.actor.linear.weight)
        policies = [each.act(obs, {}, reset, noise=noise)[0].extras["policy"] for each in (model, copied)]

    assert not torch.allclose(*policies)
    assert copied.written_out is None and model.written_out is not None
    assert model.double().written_out is None


def test_what_is_frozen_stays_as_it_is(tmp_path: Path) -> None:
    told, data = Told(), cartpole_data(total_env_steps=128)
    model = small_ppo(data)
    model.network.requires_grad_(False)
    frozen, head = model.network.body[1].weight.clone(), model.actor.linear.weight.detach().clone()

    trainer(tmp_path, told).fit(model, datamodule=data)

    assert not told.written_out
    assert torch.equal(model.network.body[1].weight, frozen) and not torch.equal(model.actor.linear.weight, head)
