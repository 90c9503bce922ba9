"""Recurrent DQN: outputs from stored states are those of acting, targets follow the state, and runs repeat."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from callbacks.run_control.checkpoint import RunCheckpoint
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import ReplayBatch, Rollout
from modules.dqn.dqn import DQN, DQNBatch
from modules.networks import MLP, C51Head
from tests.modules.base.test_training_loop import SaveAt
from tests.support.replay_fixtures import fitted_dqn, replay_data
from tests.support.sequence_fixtures import (
    ENVS,
    NETWORKS,
    SEQUENCES,
    iteration,
    next_outputs,
    sampled_sequences,
    spaces_of,
    unrolled,
)
from tests.support.small_runs import weights_hash

EVERY_NETWORK = pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
CHOICES = [name for name in ENVS if name != "box"]


def sampled(network: Any, env: str, n_step: int, **settings: Any) -> tuple[DQN, list[Rollout], ReplayBatch]:
    """An untrained model, rollouts that its own decisions made, and sequences of them."""
    model = DQN(spaces_of(env), network=network, **settings)
    model.explore.epsilon.fill_(0.5)
    return model, *sampled_sequences(model, env, n_step)


def acted(model: DQN, rollouts: list[Rollout]) -> tuple[Tensor, dict[str, Tensor]]:
    """Outputs `[T, B, actions, K]` of all steps, one after the other, and the states after them."""
    return unrolled(model.online.step, model.initial_state(8), rollouts)


@torch.no_grad()
@EVERY_NETWORK
@pytest.mark.parametrize("env", CHOICES)
def test_outputs_from_the_stored_state_are_those_of_acting(network: Any, env: str) -> None:
    model, rollouts, batch = sampled(network, env, n_step=2)
    outputs, _ = acted(model, rollouts)
    assert batch.context is not None and batch.context.episode_start[:, 1:].any()

    for update in range(2):
        minibatch = model.prepare(iteration(batch)).minibatches()[update]
        step, row = batch.indices[update] // 8, batch.indices[update] % 8
        steps = step + torch.arange(2, 6).unsqueeze(1)
        torch.testing.assert_close(model.outputs(minibatch), outputs[steps, row], rtol=0, atol=1e-6)


@torch.no_grad()
@EVERY_NETWORK
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("env", CHOICES)
def test_outputs_after_windows_continue_from_the_state_after_their_last_step(
    network: Any, env: str, n_step: int
) -> None:
    model, rollouts, batch = sampled(network, env, n_step)
    _, states = acted(model, rollouts)
    minibatch = model.prepare(iteration(batch)).minibatches()[0]
    assert minibatch.context is not None

    found = model.next_outputs(model.online, minibatch)

    for t, k, expected in next_outputs(model.online.step, states, batch):
        torch.testing.assert_close(found[t, k], expected, rtol=0, atol=1e-6)


def prepared(network: Any, env: str, n_step: int = 2, **settings: Any) -> tuple[DQN, DQNBatch]:
    model, _, batch = sampled(network, env, n_step, **settings)
    with torch.no_grad():
        return model, model.prepare(iteration(batch)).minibatches()[0]


def test_steps_of_the_burn_in_have_no_gradient() -> None:
    model, batch = prepared(NETWORKS["lstm"], "cartpole")
    assert batch.context is not None
    obs = batch.context.obs.clone().requires_grad_()

    model.outputs(batch._replace(context=batch.context._replace(obs=obs))).sum().backward()

    assert obs.grad is not None
    assert not obs.grad[:2].any() and obs.grad[2:6].any() and not obs.grad[6:].any()


def test_targets_are_those_of_double_q_learning_with_masks() -> None:
    model, batch = prepared(NETWORKS["gru"], "on-device")
    torch.nn.init.normal_(model.target.head.linear.weight)
    assert batch.context is not None and batch.next_mask is not None and not batch.next_mask.all()
    chooser = model.next_outputs(model.online, batch).squeeze(-1)
    best = chooser.masked_fill(~batch.next_mask, -1e9).argmax(-1, keepdim=True)
    value = model.next_outputs(model.target, batch).squeeze(-1).gather(-1, best)

    target = model.targets(batch)

    expected = batch.n_step_return + batch.discount * value.squeeze(-1)
    torch.testing.assert_close(target.squeeze(-1), expected)


def test_invalid_steps_have_no_effect_on_the_loss() -> None:
    model, batch = prepared(NETWORKS["gru"], "cartpole")
    invalid = batch.weight == 0
    assert invalid.any()

    wild = batch._replace(n_step_return=batch.n_step_return.masked_fill(invalid, 1e6))

    assert torch.equal(model.loss(batch)[0], model.loss(wild)[0])


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        *((name, {}) for name in NETWORKS),
        ("lstm", {"double_q": False}),
        ("gru", {"tau": 0.1}),
        ("mingru", {"head": C51Head}),
    ],
    ids=str,
)
def test_a_run_learns_and_the_same_seed_gives_the_same_weights(tmp_path: Path, name: str, changes: Any) -> None:
    settings = {"network": NETWORKS[name], **changes}
    once, twice = (fitted_dqn(tmp_path, replay_data(**SEQUENCES), **settings) for _ in range(2))
    assert once.updates == 19 * 2 and weights_hash(once) == weights_hash(twice)
    assert all(value == value for value in once.last_logged.values())


@pytest.mark.parametrize(
    "changes", [{"burn_in": 0, "replay_ratio": 3}, {"n_step": 1}, {"priority_alpha": 0.0}], ids=str
)
def test_every_setting_of_sequences_acts(tmp_path: Path, changes: Any) -> None:
    usual, other = (
        fitted_dqn(tmp_path, replay_data(**{**SEQUENCES, **each}), network=NETWORKS["lstm"]) for each in ({}, changes)
    )
    assert weights_hash(usual) != weights_hash(other) and usual.updates == other.updates


@EVERY_NETWORK
def test_resume_equals_the_uninterrupted_run_bit_for_bit(tmp_path: Path, network: Any) -> None:
    whole = fitted_dqn(tmp_path / "whole", replay_data(**SEQUENCES), network=network)
    stop = SaveAt(9, tmp_path / "k.ckpt", stop=True)
    fitted_dqn(tmp_path / "part", replay_data(**SEQUENCES), RunCheckpoint(), stop, network=network)
    last = next((tmp_path / "part").rglob("last.ckpt"))
    resumed = fitted_dqn(tmp_path / "rest", replay_data(**SEQUENCES), network=network, ckpt_path=last)
    assert weights_hash(resumed) == weights_hash(whole)


@pytest.mark.parametrize(
    ("network", "changes", "message"),
    [
        (NETWORKS["gru"], {}, "model.network is recurrent.*set data.sequence_length, for example to 16"),
        (MLP, SEQUENCES, "data.sequence_length is 6, but the network of DQN is feed-forward: set it to 1"),
        (NETWORKS["gru"], {**SEQUENCES, "burn_in": 6}, "data.burn_in is 6.*less than data.sequence_length 6"),
        (NETWORKS["gru"], {**SEQUENCES, "batch_size": 7}, "not a multiple of data.batch_size 7 times 4 learned steps"),
        (NETWORKS["gru"], {**SEQUENCES, "capacity": 40}, "sequences of 7 steps need at least 96"),
        (NETWORKS["gru"], {**SEQUENCES, "n_sampled_goal": 4}, "hindsight relabels single steps"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(tmp_path: Path, network: Any, changes: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        fitted_dqn(tmp_path, replay_data(**changes), network=network)
