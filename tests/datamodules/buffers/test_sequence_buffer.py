"""The ring of sequences against a list that keeps everything."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.buffers.sequence_buffer import SequenceBuffer
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import MetricVector, Rollout

ROWS = 3


def rollout(first: int, steps: int, ends: set[int]) -> Rollout:
    """Observation t of row b is 10 t + b; the steps in `ends` end an episode of row 0."""
    obs = 10.0 * torch.arange(first, first + steps + 1)[:, None, None] + torch.arange(ROWS)[None, :, None]
    flags = torch.zeros(steps, ROWS, dtype=torch.bool)
    truncated = flags.clone()
    truncated[:, 0] = torch.tensor([first + t in ends for t in range(steps)])
    return Rollout(
        obs=obs, action=obs[:-1] + 0.5, reward=obs[:-1, :, 0], terminated=flags, truncated=truncated, valid=~flags,
        episode_start=flags, final_obs=obs[:1], final_step=torch.full((1, ROWS), -1), state={}, extras={},
        episodes=MetricVector((), torch.zeros(0)), env_steps=steps * ROWS, has_invalid_steps=False,
    )  # fmt: skip


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=9), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_history_and_pieces_are_what_was_lived(sizes: list[int], seed: int) -> None:
    ring, now, ends = SequenceBuffer(capacity=8, length=4), 0, {3, 10}
    for steps in sizes:
        ring.append(rollout(now, steps, ends))
        now += steps

    history = ring.history()
    lived = torch.arange(now - 8, now)
    expected = (lived >= 0)[:, None].repeat(1, ROWS)
    expected[:, 0] &= torch.tensor([int(t) not in ends for t in lived])
    assert torch.equal(history.contiguous, expected)
    known = lived >= 0
    assert torch.equal(history.obs[:-1, :, 0][known], 10.0 * lived[known, None] + torch.arange(ROWS))
    assert torch.equal(history.action[known], history.obs[:-1][known] + 0.5)

    uniforms = torch.rand(2, 5, 2, generator=torch.Generator().manual_seed(seed))
    pieces = ring.sample(uniforms, recent=1)
    follows = pieces.obs[:, 1:, :, 0] - pieces.obs[:, :-1, :, 0] == 10
    assert pieces.contiguous.shape == (2, 4, 5) and follows[pieces.contiguous].all()
    assert (pieces.action[pieces.contiguous] == pieces.obs[:, :-1][pieces.contiguous] + 0.5).all()
    assert (pieces.obs[:, -1, 0, 0] // 10 == now).all(), "the first piece is the newest"
    assert pieces.contiguous.any()


def test_every_start_is_drawn_and_none_crosses_the_newest_step() -> None:
    ring = SequenceBuffer(capacity=6, length=3)
    ring.append(rollout(0, 5, set()))
    ring.append(rollout(5, 4, set()))

    uniforms = torch.rand(1, 500, 2, generator=torch.Generator().manual_seed(0))
    starts = ring.sample(uniforms, recent=0).obs[0, 0, :, 0] // 10

    assert starts.unique().tolist() == [3, 4, 5, 6]


def test_a_ring_continues_from_its_state() -> None:
    ring, other = SequenceBuffer(6, 3), SequenceBuffer(6, 3)
    ring.append(rollout(0, 5, set()))

    other.load_state_dict(ring.state_dict(), torch.device("cpu"))
    for each in (ring, other):
        each.append(rollout(5, 4, set()))

    assert all(torch.equal(a, b) for a, b in zip(ring.history(), other.history(), strict=True))


def test_a_cut_ring_does_not_join_what_comes_next() -> None:
    ring = SequenceBuffer(6, 3)
    ring.append(rollout(0, 3, set()))

    ring.break_episode()
    ring.append(rollout(9, 2, set()))

    assert ring.history().contiguous[:, 1].tolist() == [False, True, True, False, True, True]


@pytest.mark.parametrize(("capacity", "length", "steps"), [(3, 4, 1), (4, 2, 5)])
def test_what_does_not_fit_is_refused(capacity: int, length: int, steps: int) -> None:
    with pytest.raises(ConfigurationError, match=r"raise data\.capacity"):
        SequenceBuffer(capacity, length).append(rollout(0, steps, set()))


def test_another_capacity_is_refused() -> None:
    ring = SequenceBuffer(6, 3)
    ring.append(rollout(0, 3, set()))

    with pytest.raises(ConfigurationError, match=r"capacity 6, not 7: keep data\.capacity"):
        SequenceBuffer(7, 3).load_state_dict(ring.state_dict(), torch.device("cpu"))


def test_steps_of_another_number_of_rows_are_refused() -> None:
    ring, other = SequenceBuffer(6, 3), SequenceBuffer(6, 3)
    ring.append(rollout(0, 3, set()))
    state = ring.state_dict()
    other.load_state_dict({**state, "obs": state["obs"][:, :2]}, torch.device("cpu"))

    with pytest.raises(ConfigurationError, match=r"have obs of shape \[2, 1\],.* \[3, 1\]: keep data\.num_envs"):
        other.append(rollout(3, 2, set()))
