"""Rollouts of a recurrent model's own decisions, and sequences that a replay samples from them."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from datamodules.buffers.ring_buffer import RingBuffer
from datamodules.buffers.sequence_replay import SequenceReplayBuffer
from datamodules.collect.collector import RolloutCollector
from datamodules.core.types import OffPolicyIteration, ReplayBatch, Rollout, SpaceSpec, State
from datamodules.vector.make_env import make_vector_env, probe_spaces
from modules.base.algorithm import Algorithm
from modules.networks import GRU, LSTM, MinGRU
from tests.modules.ppo.test_ppo_recurrent import copied
from tests.support import counting_env as counting

NETWORKS: dict[str, Any] = {
    "lstm": partial(LSTM, hidden=16, encoder=(8,)),
    "gru": partial(GRU, hidden=16, encoder=(8,)),
    "mingru": partial(MinGRU, hidden=16, encoder=(8,), layers=2),
}
SEQUENCES: dict[str, Any] = {"sequence_length": 6, "burn_in": 2, "batch_size": 8}
ENVS: dict[str, Any] = {
    "truncated": (f"{counting.__name__}.Counting", {"length": 4, "end": "truncated"}),
    "terminated": (f"{counting.__name__}.Counting", {"length": 3}),
    "on-device": (f"{counting.__name__}.CountingTensors", {"length": 11, "end": "truncated"}),
    "cartpole": ("CartPole-v1", {}),
    "box": ("tests.oracles.sac.Drift", {}),
}


def spaces_of(env: str) -> SpaceSpec:
    """The spaces of one of `ENVS`."""
    return probe_spaces(*ENVS[env])


def sampled_sequences(model: Algorithm, env: str, n_step: int) -> tuple[list[Rollout], ReplayBatch]:
    """Five rollouts of 8 steps in 8 environments, and 2 x 64 sequences of them, of 6 steps with 2 of burn-in."""
    path, kwargs = ENVS[env]
    collector = RolloutCollector(
        make_vector_env(path, 8, env_kwargs=kwargs), model, 8, torch.Generator().manual_seed(0), "here"
    )
    collector.reset(1)
    rollouts, replay, cpu = [], None, torch.device("cpu")
    for _ in range(5):
        rollout, masks = copied(collector.collect()), dict(collector.state.masks)
        if replay is None:
            sizes: dict[str, Any] = {"sequence_length": 6, "burn_in": 2, "has_invalid_steps": rollout.has_invalid_steps}
            ring = RingBuffer(rollout, masks, 64, num_final_slots=200, device=cpu)
            replay = SequenceReplayBuffer(ring, n_step, cpu, **sizes)
        replay.write(rollout, masks)
        replay.commit_()
        rollouts.append(rollout)
    assert replay is not None
    return rollouts, replay.sample(replay.noise(2, 64, torch.Generator().manual_seed(1)))


def unrolled(step: Callable[..., tuple[Tensor, State]], state: State, rollouts: list[Rollout]) -> tuple[Tensor, State]:
    """Outputs `[T, B, ...]` of all steps, one after the other from an initial state, and the states after them."""
    outputs, states = [], []
    for rollout in rollouts:
        for obs, start in zip(rollout.obs[:-1], rollout.episode_start, strict=True):
            output, state = step(obs, state, start)
            outputs.append(output)
            states.append(state)
    return torch.stack(outputs), {name: torch.stack([each[name] for each in states]) for name in state}


def next_outputs(
    step: Callable[..., tuple[Tensor, State]], states: State, batch: ReplayBatch
) -> Iterator[tuple[int, int, Tensor]]:
    """Step t and entry k of some windows of the first minibatch, and the output of the observation after each.

    Args:
        states: after every step of the rollouts, as `unrolled` returns them.
    """
    for k in range(0, 64, 7):
        row = int(batch.indices[0, k]) % 8
        for t in range(4):
            if not batch.loss_weight[0, t, k]:
                continue
            last = int(batch.indices[0, k]) // 8 + 2 + t + int(batch.num_steps[0, t, k]) - 1
            before = {name: leaf[last, row : row + 1] for name, leaf in states.items()}
            output, _ = step(batch.next_obs[0, t, k : k + 1], before, torch.tensor([False]))
            yield t, k, output[0]


def iteration(batch: ReplayBatch) -> Any:
    """An iteration of nothing but minibatches."""
    return OffPolicyIteration(None, batch, None)  # type: ignore[arg-type]
