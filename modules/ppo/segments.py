"""Segments of a rollout: steps of one environment that a recurrent network is unrolled over, and V-trace runs along."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import State
from modules.functional.returns import vtrace_correction
from modules.ppo.batch import PPOBatch
from modules.ppo.large_batch import LargeBatch

if TYPE_CHECKING:
    from modules.ppo.ppo import PPO


def check_segments(model: "PPO") -> None:
    """Check that the settings of segments, V-trace and priorities act.

    Raises: ConfigurationError for a value other than the default where the setting that it needs is off.
    """
    options: LargeBatch = model.large_batch
    length, gae = options.bptt_length, options.advantage == "gae"
    if length is not None and not model.learns_segments:
        raise ConfigurationError(
            f"model.bptt_length is {length}, but a feed-forward network learns from single transitions: remove"
            " it, or set model.advantage to vtrace or model.priority_alpha above 0."
        )
    for name in ("rho_clip", "c_clip"):
        if gae and getattr(options, name) != getattr(LargeBatch, name):
            raise ConfigurationError(
                f"model.{name} is {getattr(options, name)}, but model.advantage is gae, which has no ratios: remove it,"
                " or set model.advantage to vtrace."
            )
    if options.priority_alpha == 0 and options.priority_beta != LargeBatch.priority_beta:
        raise ConfigurationError(
            f"model.priority_beta is {options.priority_beta}, but no segments are drawn by priority: remove it, or set"
            " model.priority_alpha above 0."
        )
    if options.refresh_values and gae and model.value_clip_range is None:
        raise ConfigurationError(
            "model.refresh_values is true, but no loss uses the refreshed values: remove it, or set model.advantage to"
            " vtrace, or model.value_clip_range."
        )
    if options.priority_alpha > 0 and model.minibatch_order == "strided":
        raise ConfigurationError(
            f"model.minibatch_order is strided, but model.priority_alpha is {options.priority_alpha}, which draws"
            " segments at random: set model.minibatch_order to shuffled, or model.priority_alpha to 0."
        )


def cut_into_segments(batch: PPOBatch, states: State, length: int) -> PPOBatch:
    """Cut the whole sequences of a rollout into segments of `length` steps, columns `[length, segments, ...]`.

    Segments are ordered by their first step, then by row. Each has the state that the network had before its first
    step, and for V-trace the advantage of the step after its last.

    Args:
        batch: columns `[T, B, ...]`; `length` divides T.
        states: after every observation, leaves `[T+1, B, ...]`; `{}` if the network is feed-forward.
    """
    number = len(batch.advantage) // length
    has_policy_lag = batch.trace is not None and batch.trace.behavior_log_prob is not None
    correction = batch.target - batch.value if has_policy_lag else batch.advantage
    next_advantage = torch.cat([correction[length::length], torch.zeros_like(correction[:1])]).view(1, -1)
    if number > 1:
        first = {name: leaf.unsqueeze(0) for name, leaf in batch.state.items()}
        before = {name: torch.cat([leaf, states[name][length - 1 : -2 : length]]) for name, leaf in first.items()}
        state = {name: leaf.flatten(0, 1) for name, leaf in before.items()}
        batch = batch.map(lambda column: column.unflatten(0, (number, length)).transpose(0, 1).flatten(1, 2))
        batch = batch._replace(state=state)
    if batch.trace is None:
        return batch
    return batch._replace(trace=batch.trace._replace(next_advantage=next_advantage))


def with_vtrace_advantage(
    batch: PPOBatch, log_prob: Tensor, *, gamma: float, lam: float, rho_clip: float, c_clip: float
) -> PPOBatch:
    """Return segments with the advantages and targets of the current policy, by clipped ratios (`vtrace_correction`).

    Within a segment v(s_{t+1}) is the batch's value of the next step, which may have been refreshed.

    Args:
        log_prob: of the actions `[T, S]` under the current policy, without gradient.
    """
    trace = batch.trace
    assert trace is not None and trace.next_advantage is not None
    behavior_log_prob = batch.log_prob if trace.behavior_log_prob is None else trace.behavior_log_prob
    next_value = torch.cat([batch.value[1:], trace.next_value[-1:]])
    advantage, target = vtrace_correction(
        log_prob - behavior_log_prob,
        trace.reward,
        batch.value,
        torch.where(trace.truncated, trace.next_value, next_value),
        trace.terminated,
        trace.truncated,
        trace.next_advantage,
        gamma=gamma,
        lam=lam,
        rho_max=rho_clip,
        c_max=c_clip,
    )
    return batch._replace(advantage=advantage, target=target)
