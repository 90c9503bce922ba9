"""Segments of a rollout: their first states, and advantages of V-trace that know what comes after a segment."""

import math
from typing import Any

import pytest
import torch

from datamodules.core.types import Rollout
from modules.networks import MLP
from modules.ppo.batch import PPOBatch
from modules.ppo.ppo import PPO
from modules.ppo.segments import with_vtrace_advantage
from tests.modules.ppo.test_ppo_recurrent import EVERY_NETWORK, copied, model_and_rollouts
from tests.support import counting_env as counting


def prepared(model: PPO, rollout: Rollout) -> PPOBatch:
    with torch.no_grad():
        return model.prepare(rollout)


def two_batches(network: Any = None, env: str = "CartPole-v1", **settings: Any) -> tuple[PPO, PPOBatch, PPOBatch]:
    """A model with segments of 4 steps, and its batch in whole sequences of 8 and in segments."""
    kwargs = {} if network is None else {"network": network}
    cut = {"settings": {"bptt_length": 4, **settings}}
    model, rollouts = model_and_rollouts(env, 6, **cut, **kwargs)
    rollout = next(each for each in rollouts if each.episode_start[1:].any())
    short = prepared(model, rollout)
    model.large_batch = type(model.large_batch)(**{**vars(model.large_batch), "bptt_length": None})
    return model, prepared(model, rollout), short


@EVERY_NETWORK
def test_a_segment_begins_with_the_state_that_the_network_had_there(network: Any) -> None:
    model, whole, short = two_batches(network)
    with torch.no_grad():
        expected, found = (model.torso_features(batch)[0] for batch in (whole, short))
    assert found.shape[:2] == (4, 16) and whole.advantage.shape == (8, 8)
    torch.testing.assert_close(found.unflatten(1, (2, 8)).transpose(0, 1).flatten(0, 1), expected)


@EVERY_NETWORK
def test_segments_recompute_the_stored_log_probs(network: Any) -> None:
    model, _, short = two_batches(network)
    with torch.no_grad():
        torch.testing.assert_close(model.log_prob(short), short.log_prob, rtol=0, atol=1e-5)


def test_no_gradient_flows_from_a_segment_to_the_one_before() -> None:
    model, _, short = two_batches()
    obs = short.obs.clone().requires_grad_()
    model.torso_features(short._replace(obs=obs))[0][:, 8:].sum().backward()  # the second segments of the 8 rows
    assert obs.grad is not None
    assert not obs.grad[:, :8].any() and obs.grad[:, 8:].any()


@pytest.mark.parametrize("length", [1, 2, 4, 8])
def test_at_ratio_one_vtrace_is_the_gae_of_the_whole_rollout_in_segments_of_any_length(length: int) -> None:
    settings = {"bptt_length": length, "advantage": "vtrace"}
    path = f"{counting.__name__}.Counting"
    model, rollouts = model_and_rollouts(path, 3, settings=settings, length=3, end="truncated")
    for rollout in rollouts:
        batch = prepared(model, rollout)
        assert rollout.truncated.any() and batch.size == 8 * 8 // length
        again = with_vtrace_advantage(batch, batch.log_prob, gamma=0.99, lam=0.95, rho_clip=1.0, c_clip=1.0)
        assert torch.equal(again.advantage, batch.advantage) and torch.equal(again.target, batch.target)


def lagged_model(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> tuple[PPO, Rollout]:
    """A model of values 0, and a rollout of rewards 1 whose actions have log ratios of 0.5 to it; no discount."""
    settings |= {"gamma": 1.0, "gae_lambda": 1.0, "rho_clip": 2.0, "c_clip": 2.0}
    model, (rollout,) = model_and_rollouts("CartPole-v1", 1, rows=1, horizon=4, network=MLP, settings=settings)
    assert not (rollout.terminated | rollout.truncated).any() and bool(rollout.reward.eq(1.0).all())
    monkeypatch.setattr(PPO, "has_policy_lag", True)
    monkeypatch.setattr("modules.ppo.ppo.reevaluate", lambda model, acted: acted._replace())
    log_prob = lambda model, each: torch.full((4, 1), 0.0 if each is rollout else 0.5)  # noqa: E731
    monkeypatch.setattr("modules.ppo.ppo.rollout_log_prob", log_prob)
    monkeypatch.setattr(model, "values", lambda rollout: (torch.zeros(5, 1), {}))
    monkeypatch.setattr(model, "next_value", lambda *_: torch.zeros(4, 1))
    return model, rollout


@pytest.mark.parametrize("length", [2, 4])
def test_what_comes_after_a_segment_of_an_older_policy_has_the_bounds_of_the_segment(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    batch = prepared(*lagged_model(monkeypatch, advantage="vtrace", bptt_length=length))
    log_prob = torch.full_like(batch.log_prob, 0.5)
    again = with_vtrace_advantage(batch, log_prob, gamma=1.0, lam=1.0, rho_clip=2.0, c_clip=2.0)
    ratio = math.exp(0.5)
    expected = ratio + ratio**2 + ratio**3 + ratio**4
    assert float(again.advantage[0, 0]) == pytest.approx(expected)
    assert float(batch.advantage[0, 0]) == pytest.approx(expected)


def test_vtrace_reads_refreshed_values_within_a_segment() -> None:
    _, _, short = two_batches(advantage="vtrace")
    fresh = short._replace(value=short.value + 1.0)
    bounds = {"gamma": 1.0, "lam": 0.0, "rho_clip": 1.0, "c_clip": 1.0}
    before, after = (with_vtrace_advantage(each, short.log_prob, **bounds).advantage for each in (short, fresh))
    assert short.trace is not None
    expected = (~short.trace.terminated & ~short.trace.truncated).float() - 1.0  # v(s') rises too, but not at an end
    torch.testing.assert_close((after - before)[:-1], expected[:-1])
    torch.testing.assert_close((after - before)[-1], -torch.ones(16))


def test_minibatches_of_a_feed_forward_network_are_segments_with_vtrace() -> None:
    model, (rollout,) = model_and_rollouts("CartPole-v1", 1, network=MLP, settings={"advantage": "vtrace"})
    batch = prepared(model, rollout)
    part = batch.select(torch.tensor([6, 1]))
    with torch.no_grad():
        loss = model.loss(part)
    assert part.advantage.shape == (8, 2) and part.episode_start is None
    assert loss.loss.isfinite() and loss.value.shape == (8, 2) and float(loss.metrics[3]) < 1e-6


def test_the_first_minibatch_of_vtrace_has_the_loss_of_gae() -> None:
    losses = []
    for advantage in ("gae", "vtrace"):
        torch.manual_seed(0)
        model, (_, rollout) = model_and_rollouts("CartPole-v1", 2, settings={"advantage": advantage})
        losses.append(model.loss(prepared(model, copied(rollout))).loss)
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-7)
