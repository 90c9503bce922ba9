"""Sequences from a replay: consecutive steps, the state before them, and the windows that begin in them."""

from typing import Any

import pytest
import torch
from torch import Tensor

from datamodules.buffers.ring_buffer import RingBuffer
from datamodules.buffers.sequence_replay import SequenceReplayBuffer
from datamodules.buffers.sum_tree import SumTree
from datamodules.core.types import ReplayBatch, Rollout
from tests.support.rollout_fixtures import Writer

CPU = torch.device("cpu")


class StatefulWriter(Writer):
    """Rollouts whose stored state before step t is t + 0.5."""

    def rollout(self, steps: int) -> tuple[Rollout, dict[str, Tensor]]:
        rollout, masks = super().rollout(steps)
        state = (rollout.reward + 0.5).unsqueeze(-1)
        return rollout._replace(extras=rollout.extras | {"state/hidden": state}), masks


def replay_of(writer: Writer, n_step: int = 1, rows: int = 32, rollouts: int = 6, **settings: Any) -> Any:
    replay, alpha = None, settings.pop("alpha", 0.0)
    settings = {"sequence_length": 5, "burn_in": 2, **settings}
    for _ in range(rollouts):
        rollout, masks = writer.rollout(4)
        if replay is None:
            ring = RingBuffer(rollout, masks, rows, num_final_slots=16, device=CPU)
            settings |= {"has_invalid_steps": bool(writer.invalid)}
            settings |= {"priorities": SumTree(rows * 2, alpha, CPU) if alpha else None}
            replay = SequenceReplayBuffer(ring, n_step, CPU, **settings)
        replay.write(rollout, masks)
        replay.commit_()
    return replay


def drawn(replay: SequenceReplayBuffer, number: int = 500) -> ReplayBatch:
    return replay.sample(replay.noise(2, number, torch.Generator().manual_seed(0)))


def test_a_sequence_has_consecutive_steps_and_the_state_before_the_first() -> None:
    batch = drawn(replay_of(StatefulWriter(truncated=(6, 13)), n_step=3))

    assert batch.context is not None
    first = batch.context.obs[:, :1]
    times = torch.arange(7).view(1, 7, 1) + first[..., 0]
    assert torch.equal(batch.context.obs[..., 0], times) and torch.equal(batch.obs[..., 0], times[:, 2:5])
    assert torch.equal(batch.context.state["hidden"].squeeze(-1), first[:, 0, :, 0] + 0.5)
    begins = (times == 0) | (times == 7) | (times == 14)
    assert torch.equal(batch.context.episode_start, begins) and begins[:, 1:].any()
    assert "state/hidden" not in batch.extras and batch.extras["option"].shape == batch.action.shape == (2, 3, 500)


def test_windows_are_those_of_single_steps_and_end_where_the_context_says() -> None:
    writer = StatefulWriter(terminated=(9,), truncated=(6,))
    writer.invalid = (15,)
    replay = replay_of(writer, n_step=3)

    batch = drawn(replay)
    alone = replay.gather((batch.indices.unsqueeze(1) + torch.tensor([[[4], [6], [8]]])).flatten() % (32 * 2))

    for name in ("reward", "next_obs", "loss_weight", "num_steps", "terminated"):
        assert torch.equal(getattr(batch, name).flatten(0, 2), getattr(alone, name)), name
    counted, context = batch.loss_weight > 0, batch.context
    assert context is not None and not counted.all()
    last = context.obs[..., 0].gather(1, context.last_step)
    assert torch.equal((last - batch.obs[..., 0] + 1)[counted], batch.num_steps[counted].float())


@pytest.mark.parametrize("alpha", [0.0, 0.6])
@pytest.mark.parametrize("rollouts", [3, 5, 8, 30])
def test_no_sequence_crosses_the_write_head_and_all_others_are_drawn(rollouts: int, alpha: float) -> None:
    batch = drawn(replay_of(StatefulWriter(), n_step=2, rows=17, rollouts=rollouts, alpha=alpha), 2000)

    assert batch.context is not None
    starts, newest = batch.context.obs[:, 0, :, 0], 4 * rollouts
    assert starts.min() == max(0, newest - 16) and starts.max() == newest - 6
    assert torch.equal(batch.context.obs[:, -1, :, 0] - starts, torch.full_like(starts, 5))


def test_sequences_are_drawn_by_their_priorities_and_weighted_against_them() -> None:
    replay = replay_of(StatefulWriter(), alpha=1.0)
    everywhere = torch.arange(replay.ring.capacity * 2)
    started = everywhere[replay.priorities.levels[0][: len(everywhere)] > 0]
    replay.update_priorities(started, torch.where(started == 10, 99.0, 1.0))

    batch = drawn(replay, 1000)

    share = (batch.indices == 10).float().mean()
    assert share == pytest.approx(99 / (98 + len(started)), abs=0.05)
    weight = batch.loss_weight[:, 0]
    assert weight[batch.indices == 10].max() < 0.02 and weight.max() == 1


def test_a_restored_buffer_draws_the_same_sequences() -> None:
    replay, other = (replay_of(StatefulWriter(), rollouts=rollouts, alpha=0.5) for rollouts in (6, 1))
    other.load_state_dict(replay.state_dict())

    batch, again = drawn(replay), drawn(other)

    assert batch.context is not None and again.context is not None
    assert torch.equal(batch.context.obs, again.context.obs) and torch.equal(batch.loss_weight, again.loss_weight)
