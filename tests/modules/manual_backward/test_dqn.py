"""Updates with gradients written out are those of autograd to the last bit, and made only where they can be."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import Adam
from torch.testing import assert_close

from datamodules.core.types import Spaces
from modules.dqn.dqn import DQN, DQNBatch
from modules.manual_backward.dqn import WrittenOut
from modules.networks.heads.q_value import C51Head, QHead
from modules.networks.mlp import MLP
from modules.optim.optimizer_group import Optimizers
from tests.support.replay_fixtures import fitted_dqn, replay_data, small_dqn
from tests.support.small_runs import Told, trainer, weights_hash

RELU = partial(MLP, hidden=(16, 8), activation="relu")


def made(obs_shape: tuple[int, ...], actions: int, hidden: tuple[int, ...], **settings: Any) -> DQN:
    torch.manual_seed(0)
    choice: dict[str, Any] = {"action_kind": "discrete", "action_low": [], "action_high": [], "action_start": [0]}
    spaces = Spaces(obs_shape=obs_shape, obs_dtype="float32", action_sizes=[actions], agents=1, **choice)
    model = DQN(spaces, partial(MLP, hidden=hidden, activation="relu"), **settings)
    model.optimization = Optimizers(model.make_optimizers())
    torch.nn.init.normal_(model.target.head.linear.bias)
    return model


def minibatches(model: DQN, updates: int, rows: int) -> DQNBatch:
    generator = torch.Generator().manual_seed(1)
    draw = partial(torch.randn, generator=generator)
    obs, next_obs = draw(2, updates, rows, *model.spaces["obs_shape"]).mul(3).round().long()
    action, allowed = draw(updates, rows, model.explore.actions).argmax(-1), draw(updates, rows, model.explore.actions)
    following = None
    if model.tau is None:
        following = model.target(next_obs.flatten(0, 1)).unflatten(0, (updates, rows))
    weight, discount = draw(updates, rows).clamp(min=0), draw(updates, rows).sign().clamp(min=0) * 0.9
    columns = (obs, action, 3 * draw(updates, rows), discount, next_obs, allowed > allowed.amin(-1, True), following)
    batch = DQNBatch(*columns, weight, action)
    return batch if model.online_chooses or model.tau is not None else batch._replace(target=model.targets(batch))


@pytest.mark.parametrize(
    ("rows", "obs_shape", "actions", "hidden", "settings"),
    [
        (16, (3,), 2, (32,), {"double": False}),
        (128, (4,), 2, (64, 64), {"learning_rate": 1e-2, "double": False}),
        (100, (2, 2), 5, (16, 8, 4), {"max_grad_norm": 0.1, "double": False, "tau": 0.1}),
        (7, (5,), 3, (33, 17), {"tau": 0.01}),
        (64, (5,), 3, (24, 16), {"max_grad_norm": 0.1}),
        (32, (6,), 4, (24, 16), {"head": partial(QHead, dueling=True)}),
    ],
    ids=["one layer", "a pole", "clipped, following", "double, following", "double, copied", "dueling"],
)
def test_fifty_updates_are_those_of_autograd_to_the_last_bit(
    rows: int, obs_shape: tuple[int, ...], actions: int, hidden: tuple[int, ...], settings: dict[str, Any]
) -> None:
    graph, short = (made(obs_shape, actions, hidden, **settings) for _ in range(2))
    short.written_out = WrittenOut(short)
    batch = minibatches(graph, 50, rows)

    (measured, error), (short_measured, short_error) = (model.learn_all(batch) for model in (graph, short))

    assert torch.equal(error, short_error)
    assert_close(measured, short_measured)
    assert all(torch.equal(*pair) for pair in zip(graph.parameters(), short.parameters(), strict=True))


def test_many_rows_are_asked_about_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    model, obs = made((5,), 3, (24, 16)), torch.randn(100, 5)
    written_out = WrittenOut(model)
    whole = written_out.online(obs)

    monkeypatch.setattr("modules.manual_backward.dqn.ROWS", 16)

    assert_close(written_out.online(obs), whole)
    assert_close(written_out.target(obs), model.target(obs))


class Plain(DQN):
    """Another class, which may have another loss."""


@pytest.mark.parametrize("settings", [{"head": partial(QHead, dueling=True)}, {"double": False}, {"tau": 0.1}], ids=str)
def test_a_run_takes_the_short_way_and_ends_with_the_weights_of_the_long_one(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    told, settings = [Told(), Told()], settings | {"network": RELU}

    short, graph = (
        fitted_dqn(tmp_path, replay_data(), each, kind=kind, **settings)
        for each, kind in zip(told, (DQN, Plain), strict=True)
    )

    assert [each.written_out for each in told] == [True, False]
    assert weights_hash(short) == weights_hash(graph)


def test_networks_moved_after_a_run_act_with_what_they_are_then(tmp_path: Path) -> None:
    model, obs = fitted_dqn(tmp_path, replay_data(total_env_steps=128), network=RELU), torch.ones(2, 19)

    assert model.double().networks.online(obs.double()).dtype == torch.float64


@pytest.mark.parametrize(
    "settings",
    [
        {"network": MLP},
        {"network": partial(RELU, layer_norm=True)},
        {"network": partial(RELU, scale=0.5)},
        {"network": RELU, "head": C51Head},
        {"network": RELU, "optimizer": lambda params: Adam([{"params": [each]} for each in params])},
    ],
    ids=["tanh", "layer norm", "scaled", "a distribution", "groups of parameters"],
)
def test_what_it_does_not_know_goes_the_long_way(tmp_path: Path, settings: dict[str, Any]) -> None:
    told = Told()

    fitted_dqn(tmp_path, replay_data(total_env_steps=128), told, **settings)

    assert not told.written_out


@pytest.mark.parametrize("part", ["online.torso.body.1", "online.torso", "online"])
def test_whoever_listens_hears_the_updates(tmp_path: Path, part: str) -> None:
    data, heard = replay_data(total_env_steps=128), list[str]()
    model, told = small_dqn(data, network=RELU), Told()
    model.get_submodule(part).register_forward_hook(lambda *_: heard.append(part))

    trainer(tmp_path, told).fit(model, datamodule=data)

    assert heard and not told.written_out


def test_what_is_frozen_stays_as_it_is(tmp_path: Path) -> None:
    told, data = Told(), replay_data(total_env_steps=128)
    model = small_dqn(data, network=RELU)
    model.online.torso.requires_grad_(False)
    before = [parameter.clone() for parameter in model.online.torso.parameters()]

    trainer(tmp_path, told).fit(model, datamodule=data)

    assert not told.written_out and model.updates > 0
    assert all(torch.equal(*pair) for pair in zip(before, model.online.torso.parameters(), strict=True))
