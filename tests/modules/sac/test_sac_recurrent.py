"""Recurrent SAC: features from stored states are those of acting, a memoryless torso changes nothing, runs repeat."""

from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from callbacks.run_control.checkpoint import RunCheckpoint
from datamodules.core.errors import ConfigurationError
from datamodules.core.pytree import strip_prefix
from datamodules.core.types import PolicyInput, ReplayBatch, Rollout, State
from modules.networks import MLP, RecurrentCritic, TwinMLP
from modules.networks.base import extract_features
from modules.optim.optimizer_group import OptimizerGroup
from modules.sac.batch import SACBatch, sac_batch
from modules.sac.curiosity import Curiosity
from modules.sac.sac import SAC
from modules.sac.sac_bc import SACBC
from modules.sac.sequences import ACTOR, CRITIC
from modules.sac_options.sac_options import SACOptions
from tests.oracles.sac import box_data, choice_data, fitted_sac
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
EVERY_ENV = pytest.mark.parametrize("env", ENVS)


def parts(network: Any) -> dict[str, Any]:
    """Both torsos of the same kind."""
    return {"network": network, "critic": partial(RecurrentCritic, network=network, hidden=(16,))}


def sampled(network: Any, env: str, n_step: int, **settings: Any) -> tuple[SAC, list[Rollout], ReplayBatch]:
    """An untrained model, rollouts that its own decisions made, and sequences of them."""
    torch.manual_seed(1)
    model = SAC(spaces_of(env), **parts(network), **settings)
    return model, *sampled_sequences(model, env, n_step)


def torso(model: SAC, prefix: str) -> Any:
    return model.network if prefix == ACTOR else model.critic.torso


def acted(model: SAC, rollouts: list[Rollout], prefix: str) -> tuple[Tensor, State]:
    """Features `[T, B, F]` of a torso at all steps, one after the other, and the states after them."""
    return unrolled(torso(model, prefix), torso(model, prefix).initial_state(8), rollouts)


@torch.no_grad()
@EVERY_NETWORK
@EVERY_ENV
def test_features_from_the_stored_state_are_those_of_acting(network: Any, env: str) -> None:
    model, rollouts, batch = sampled(network, env, n_step=2)
    expected = {prefix: acted(model, rollouts, prefix)[0] for prefix in (ACTOR, CRITIC)}
    assert batch.context is not None and batch.context.episode_start[:, 1:].any()

    for update in range(2):
        obs = model.prepare(iteration(batch)).minibatch(update).obs
        step, row = batch.indices[update] // 8, batch.indices[update] % 8
        steps = step + torch.arange(2, 6).unsqueeze(1)
        for prefix, outputs in expected.items():
            found = obs.features(torso(model, prefix), prefix)
            torch.testing.assert_close(found, outputs[steps, row].flatten(0, 1), rtol=0, atol=1e-6)


@torch.no_grad()
@EVERY_NETWORK
@EVERY_ENV
@pytest.mark.parametrize("n_step", [1, 3])
def test_features_after_windows_continue_from_the_state_after_their_last_step(
    network: Any, env: str, n_step: int
) -> None:
    model, rollouts, batch = sampled(network, env, n_step)
    next_obs = model.prepare(iteration(batch)).minibatch(0).next_obs
    for prefix in (ACTOR, CRITIC):
        _, states = acted(model, rollouts, prefix)
        found = next_obs.features(torso(model, prefix), prefix).view(4, 64, -1)
        for t, k, expected in next_outputs(torso(model, prefix), states, batch):
            torch.testing.assert_close(found[t, k], expected, rtol=0, atol=1e-6)


@torch.no_grad()
@EVERY_NETWORK
def test_a_new_episode_starts_from_the_initial_state_of_both_torsos(network: Any) -> None:
    model, start = SAC(spaces_of("box"), **parts(network)), torch.tensor([False, True])
    obs, noise = torch.randn(2, 1), torch.randn(2, 1)
    used = {name: torch.randn_like(leaf) for name, leaf in model.initial_state(2).items()}

    output, after = model.act(PolicyInput(obs, used, start), noise)

    fresh, first = model.act(PolicyInput(obs, model.initial_state(2), start), noise)
    assert torch.equal(output.action[1], fresh.action[1]) and not torch.equal(output.action[0], fresh.action[0])
    assert all(torch.equal(after[name][1], first[name][1]) for name in first)
    assert {strip_prefix(prefix, first).keys() == strip_prefix(prefix, used).keys() for prefix in (ACTOR, CRITIC)} == {
        True
    }
    assert all(torch.equal(output.extras["state/" + name], leaf) for name, leaf in used.items())


class Memoryless(MLP):
    """An MLP with the interface of a recurrent network."""

    def unroll(self, obs: Tensor, state: State, episode_start: Tensor) -> Tensor:
        return self.unroll_with_states(obs, state, episode_start)[0]

    def unroll_with_states(self, obs: Tensor, state: State, episode_start: Tensor) -> tuple[Tensor, State]:
        return extract_features(self, obs.flatten(0, 1)).unflatten(0, obs.shape[:2]), state


class FeedForwardCritic(nn.Module):
    """The layers of a `RecurrentCritic`, of single observations."""

    def __init__(self, obs_shape: Any, action_dims: int, outputs: int):
        super().__init__()
        self.layers = RecurrentCritic(obs_shape, action_dims, outputs, Memoryless, (16,))

    def forward(self, obs: Tensor, action: Tensor | None = None) -> Tensor:
        return self.layers(extract_features(self.layers.torso, obs), action)


def same_weights(one: SAC, other: SAC) -> bool:
    return all(torch.equal(*pair) for pair in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("env", ["cartpole", "box", "on-device"])
@pytest.mark.parametrize("n_step", [1, 3])
def test_with_a_memoryless_torso_an_update_is_that_of_feed_forward_networks_to_the_bit(env: str, n_step: int) -> None:
    recurrent, _, sequences = sampled(Memoryless, env, n_step)
    torch.manual_seed(1)
    plain = SAC(spaces_of(env), network=MLP, critic=FeedForwardCritic)
    assert same_weights(plain, recurrent)
    unordered = sequences._replace(context=None)
    windows = cast(Any, sac_batch(unordered, 0.99)).map(lambda column: column.flatten(1, 2))
    windows = windows._replace(action=recurrent.prepare(iteration(sequences)).action)

    for model, batch in ((recurrent, recurrent.prepare(iteration(sequences))), (plain, windows)):
        model.optim = OptimizerGroup(model.build_optimizers())
        generator = torch.Generator().manual_seed(2)
        noise = model.head.noise((2, 2, 256), generator) if model.continuous else None
        model.run_updates(batch, noise)

    assert same_weights(plain, recurrent)


def test_neither_the_burn_in_nor_targets_have_a_gradient() -> None:
    model, _, batch = sampled(NETWORKS["lstm"], "box", n_step=2)
    rows = model.prepare(iteration(batch)).minibatch(0)
    obs = rows.obs.context.obs.clone().requires_grad_()
    seen = rows._replace(obs=rows.obs.map_obs(lambda _: obs), next_obs=rows.next_obs.map_obs(lambda each: each))

    for loss in (model.critic_loss(seen, torch.randn(256, 1), torch.tensor(0.2))[0], actor_loss(model, seen)):
        obs.grad = None
        loss.backward()
        assert obs.grad is not None and not obs.grad[:2].any() and obs.grad[2:6].any() and not obs.grad[6:].any()


def actor_loss(model: SAC, batch: SACBatch) -> Tensor:
    return model.actor_loss(batch, torch.randn(256, 1), torch.tensor(0.2))[0]


def test_invalid_steps_have_no_effect_on_the_loss() -> None:
    model, _, batch = sampled(NETWORKS["gru"], "cartpole", n_step=1)
    rows = model.prepare(iteration(batch)).minibatch(0)
    invalid = rows.weight == 0
    assert invalid.any()

    wild = rows._replace(return_=rows.return_.masked_fill(invalid, 1e6))

    losses = [model.critic_loss(each, None, torch.tensor(0.2))[0] for each in (rows, wild)]
    assert torch.equal(*losses)


def test_the_priority_of_a_sequence_is_that_of_its_errors() -> None:
    model, _, batch = sampled(NETWORKS["gru"], "cartpole", n_step=1)
    rows = model.prepare(iteration(batch))
    errors = torch.rand(2, 256)

    priorities = rows.priority_errors(errors)

    counts = (batch.loss_weight > 0).float()
    each = errors.view(2, 4, 64) * counts
    expected = 0.9 * each.amax(1) + 0.1 * each.sum(1) / counts.sum(1).clamp(min=1)
    torch.testing.assert_close(priorities, expected)


@pytest.mark.parametrize("make_data", [box_data, choice_data])
@pytest.mark.parametrize("kind", [SAC, SACBC])
def test_a_run_learns_and_the_same_seed_gives_the_same_weights(tmp_path: Path, make_data: Any, kind: Any) -> None:
    runs = [
        fitted_sac(tmp_path, make_data(**SEQUENCES), **parts(NETWORKS["gru"]), kind=kind, normalize_obs=True)
        for _ in range(2)
    ]
    assert runs[0].updates == 19 and weights_hash(runs[0]) == weights_hash(runs[1])
    assert all(value == value for value in runs[0].last_logged.values())


@EVERY_NETWORK
def test_resume_equals_the_uninterrupted_run_bit_for_bit(tmp_path: Path, network: Any) -> None:
    whole = fitted_sac(tmp_path / "whole", box_data(**SEQUENCES), **parts(network))
    fitted_sac(tmp_path / "part", box_data(**SEQUENCES), RunCheckpoint(), limit_train_batches=9, **parts(network))
    (last,) = (tmp_path / "part").rglob("last.ckpt")

    resumed = fitted_sac(tmp_path / "rest", box_data(**SEQUENCES), ckpt_path=last, **parts(network))

    assert weights_hash(resumed) == weights_hash(whole)


def test_details_of_an_action_use_the_states_of_both_torsos() -> None:
    model = SAC(spaces_of("cartpole"), **parts(NETWORKS["lstm"]))
    state = {name: torch.randn_like(leaf) for name, leaf in model.initial_state(3).items()}
    inputs = PolicyInput(torch.randn(3, 4), state, torch.zeros(3, dtype=torch.bool))
    output, after = model.act(inputs, greedy=True)

    details = model.action_details(inputs, output, after)

    features, _ = model.critic.torso(inputs.obs, strip_prefix(CRITIC, state), inputs.episode_start)
    probabilities = details["probabilities"]
    torch.testing.assert_close(details["value"], (probabilities * model.critic(features).amin(0)).sum(-1))
    assert torch.equal(probabilities.argmax(-1), output.action)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"critic": TwinMLP}, "model.critic is TwinMLP, which is not: set model.critic to modules.networks.Recurrent"),
        ({"network": MLP}, "model.critic is RecurrentCritic.*model.network is MLP.*model.critic to TwinMLP"),
        ({"curiosity": Curiosity}, "model.curiosity predicts from single observations.*set model.curiosity to null"),
    ],
)
def test_parts_that_do_not_fit_are_refused_in_a_sentence(changes: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        SAC(spaces_of("box"), **{**parts(NETWORKS["gru"]), **changes})


def test_options_refuse_recurrent_networks_in_a_sentence() -> None:
    with pytest.raises(ConfigurationError, match="which is recurrent: give SACOptions a feed-forward one"):
        SACOptions(spaces_of("box"), **parts(NETWORKS["gru"]))


def test_recurrent_networks_need_sequences(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"model.network is recurrent.*set data.sequence_length"):
        fitted_sac(tmp_path, box_data(), **parts(NETWORKS["gru"]))


def test_a_feed_forward_torso_is_no_torso_of_a_recurrent_critic() -> None:
    with pytest.raises(ValueError, match="RecurrentCritic: network is MLP, which is feed-forward; use LSTM"):
        RecurrentCritic((3,), 1, 1, MLP)
