"""Updates with gradients written out are those of autograd to the last bit, and made only where they can be."""

from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch.optim import Adam

from datamodules.core.types import Spaces
from modules.manual_backward.sac import WrittenOut
from modules.networks.heads.twin_critic import TwinMLP
from modules.networks.mlp import MLP
from modules.optim.optimizer_group import Optimizers
from modules.sac.batch import SACBatch
from modules.sac.sac import SAC
from tests.oracles.sac import box_data, choice_data, fitted_sac, small_sac
from tests.support.small_runs import Told, trainer, weights_hash


def made(obs_shape: tuple[int, ...], dims: int, hidden: tuple[int, ...], **settings: Any) -> SAC:
    torch.manual_seed(0)
    box: dict[str, Any] = {"action_kind": "continuous", "action_low": [-1.0] * dims, "action_high": [3.0] * dims}
    spaces = Spaces(obs_shape=obs_shape, obs_dtype="float32", action_sizes=[], action_start=[], agents=1, **box)
    networks: dict[str, Any] = {"network": partial(MLP, hidden=hidden, activation="relu")}
    model = SAC(spaces, critic=partial(TwinMLP, hidden=hidden), **networks, **settings)
    model.optimization = Optimizers(model.make_optimizers())
    return model


def minibatches(updates: int, rows: int, obs_shape: tuple[int, ...], dims: int) -> SACBatch:
    generator = torch.Generator().manual_seed(1)
    draw = partial(torch.randn, generator=generator)
    weight, ended = draw(updates, rows).clamp(min=0), draw(updates, rows) > 1
    columns = {"action": draw(updates, rows, dims).tanh(), "return_": draw(updates, rows), "terminated": ended}
    obs, discount = draw(2, updates, rows, *obs_shape), 0.9 * (~ended).float()
    return SACBatch(obs=obs[0], next_obs=obs[1], discount=discount, extras={}, next_masks={}, weight=weight, **columns)


@pytest.mark.parametrize(
    ("rows", "obs_shape", "dims", "hidden", "settings"),
    [
        (16, (3,), 1, (32,), {}),
        (256, (17,), 6, (64, 64), {"learning_rate": 1e-2}),
        (100, (2, 2), 3, (16, 8, 4), {"max_grad_norm": 0.1}),
        (7, (5,), 2, (33, 17), {"tune_alpha": False, "alpha": 0.2}),
    ],
    ids=["one dimension", "a robot", "clipped", "fixed temperature"],
)
def test_fifty_updates_are_those_of_autograd_to_the_last_bit(
    rows: int, obs_shape: tuple[int, ...], dims: int, hidden: tuple[int, ...], settings: dict[str, Any]
) -> None:
    graph, short = (made(obs_shape, dims, hidden, **settings) for _ in range(2))
    short.written_out = WrittenOut(short)
    batch = minibatches(50, rows, obs_shape, dims)
    noise = torch.randn(50, 2, rows, dims)

    results = [model.run_updates(batch, noise) for model in (graph, short)]

    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))
    assert all(torch.equal(*pair) for pair in zip(graph.parameters(), short.parameters(), strict=True))


def test_integer_observations_are_cast_as_networks_cast_them() -> None:
    graph, short = (made((3,), 1, (8,)) for _ in range(2))
    batch = minibatches(1, 16, (3,), 1)
    batch = batch._replace(obs=batch.obs.mul(9).long(), next_obs=batch.next_obs.mul(9).long()).minibatch(0)
    noise = torch.randn(2, 16, 1)

    results = [graph.descend(batch, *noise)[0], WrittenOut(short).descend(batch, *noise)[0]]

    assert torch.equal(*results)
    assert all(torch.equal(*pair) for pair in zip(graph.parameters(), short.parameters(), strict=True))


class Plain(SAC):
    """Another class, which may have other losses."""


def test_a_run_takes_the_short_way_and_ends_with_the_weights_of_the_long_one(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"normalize_obs": True, "max_grad_norm": 1.0}

    told = [Told(), Told()]

    short, graph = (
        fitted_sac(tmp_path, box_data(), each, kind=kind, **settings)
        for each, kind in zip(told, (SAC, Plain), strict=True)
    )

    assert [each.written_out for each in told] == [True, False]
    assert weights_hash(short) == weights_hash(graph)


@pytest.mark.parametrize(
    ("data", "settings"),
    [
        (choice_data, {}),
        (box_data, {"network": partial(MLP, hidden=(8,), activation="tanh")}),
        (box_data, {"network": partial(MLP, hidden=(8,), activation="relu", layer_norm=True)}),
        (box_data, {"critic": partial(TwinMLP, hidden=(8,), activation="silu")}),
        (box_data, {"optimizer": lambda params: Adam([{"params": [each]} for each in params])}),
    ],
    ids=["choices", "tanh", "layer norm", "critics of silu", "groups of parameters"],
)
def test_what_it_does_not_know_goes_the_long_way(tmp_path: Path, data: Any, settings: dict[str, Any]) -> None:
    told = Told()

    fitted_sac(tmp_path, data(total_env_steps=48), told, **settings)

    assert not told.written_out


def test_whoever_listens_to_a_layer_hears_the_updates(tmp_path: Path) -> None:
    told, data, model, heard = Told(), box_data(total_env_steps=48), small_sac(box_data()), list[str]()
    cast(TwinMLP, model.critic).layers[0].register_forward_hook(lambda *_: heard.append("critic"))

    trainer(tmp_path, told).fit(model, datamodule=data)

    assert heard and not told.written_out


def test_what_is_frozen_stays_as_it_is(tmp_path: Path) -> None:
    told, data = Told(), box_data(total_env_steps=48)
    model = small_sac(data)
    model.network.requires_grad_(False)
    before = [parameter.clone() for parameter in model.network.parameters()]

    trainer(tmp_path, told).fit(model, datamodule=data)

    assert not told.written_out and model.updates > 0
    assert all(torch.equal(*pair) for pair in zip(before, model.network.parameters(), strict=True))
