import pytest
import torch

from datamodules.buffers.ring_buffer import RingBuffer, num_final_slots, required_bytes
from datamodules.core.errors import ConfigurationError
from tests.support.rollout_fixtures import Writer

CPU = torch.device("cpu")


def filled(writer: Writer, rows: int = 8, rollouts: int = 3, steps: int = 3, finals: int = 4) -> RingBuffer:
    ring = None
    for _ in range(rollouts):
        rollout, masks = writer.rollout(steps)
        ring = ring or RingBuffer(rollout, masks, rows, num_final_slots=finals, frame_stack=writer.stack, device=CPU)
        ring.write(rollout, masks)
        ring.commit_()
    return ring


def test_an_observation_is_stored_once_and_what_follows_lies_one_row_further():
    ring = filled(Writer())
    entry = torch.tensor([6, 7, 0]) * 2 + torch.tensor([0, 1, 1])
    assert ring.obs(entry).tolist() == [[6, 0], [7, 1], [8, 1]]
    assert ring.obs(ring.offset_index(entry, torch.tensor(1)))[0].tolist() == [7, 0]
    assert ring.gather("reward", entry).tolist() == [6, 7, 8]


def test_the_oldest_rows_are_overwritten_and_the_newest_has_no_step_yet():
    ring = filled(Writer())
    assert ring.size == 7
    assert ring.columns["reward"][:, 0].tolist() == [8, 1, 2, 3, 4, 5, 6, 7]
    assert ring.obs(torch.tensor([1 * 2])).tolist() == [[9, 0]]


def test_masks_are_stored_for_the_observation_that_has_no_step_yet():
    ring = filled(Writer())
    assert ring.gather("extras/action_mask", torch.tensor([1 * 2])).tolist() == [[False, True]]


def test_writing_counts_only_when_told_and_can_be_repeated():
    writer = Writer(truncated=(1, 4))
    ring = filled(writer)
    before, (rollout, masks) = ring.counts.clone(), writer.rollout(3)
    ring.write(rollout, masks)
    once = {name: value.clone() for name, value in ring.state_dict().items()}
    ring.write(rollout, masks)
    assert torch.equal(ring.counts, before)
    assert all(torch.equal(once[name], value) for name, value in ring.state_dict().items())
    ring.commit_()
    assert ring.counts.tolist() == [12, 4]


def test_true_last_observations_lie_apart_until_their_slots_run_out():
    ring = filled(Writer(truncated=(1, 3, 4)), finals=4)
    numbers = ring.columns["final"][:, 0]
    assert (numbers >= 0).nonzero()[:, 0].tolist() == [1, 3, 4]
    entry = torch.tensor([3 * 2 + 1, 4 * 2])
    assert ring.obs(entry + 2, ring.gather("final", entry)).tolist() == [[1003, 1], [1004, 0]]
    for row in (0, 1):  # the slots hold four of six: those of both rows' first truncation are lost
        assert ring.final_obs_lost(ring.columns["final"][[1, 3, 4], row]).tolist() == [True, False, False]


def test_more_true_last_observations_in_one_rollout_than_slots_keep_the_newest():
    ring = filled(Writer(truncated=(0, 1, 2)), rollouts=1, finals=2)
    entry = torch.tensor([2 * 2, 2 * 2 + 1])
    final = ring.gather("final", entry)
    assert not ring.final_obs_lost(final).any()
    assert ring.obs(entry + 2, final).tolist() == [[1002, 0], [1002, 1]]


@pytest.mark.parametrize("ends", [(), (4,), (3, 5), (4, 5, 6)])
def test_stacked_frames_are_stored_once_and_come_back_as_they_were(ends: tuple[int, ...]):
    writer = Writer(terminated=ends, stack=3)
    ring = filled(writer, rows=16)
    for t in range(9):
        assert torch.equal(ring.obs(torch.tensor([2 * t, 2 * t + 1])), writer.obs(t))
    assert torch.equal(ring.obs(torch.tensor([18, 19]), follows=True), writer.obs(9))
    assert ring.frames["frames"].shape[1:] == (2,)


@pytest.mark.parametrize("ends", [(1,), (1, 7), (1, 8)])
def test_the_newest_stack_goes_back_over_a_row_whose_old_step_began_an_episode(ends: tuple[int, ...]):
    writer = Writer(terminated=ends, stack=3)
    ring = filled(writer, rows=8, rollouts=5, steps=2)

    assert torch.equal(ring.obs(torch.tensor([4, 5]), follows=True), writer.obs(10))


def test_bytes_stay_bytes_and_memory_is_known_before():
    rollout, masks = Writer().rollout(3)
    rollout = rollout._replace(obs=rollout.obs.to(torch.uint8))
    ring = RingBuffer(rollout, masks, 8, num_final_slots=4, device=CPU)
    assert ring.frames["frames"].dtype == torch.uint8
    stored = ring.frames["frames"].nbytes + sum(value.nbytes for value in ring.columns.values())
    assert stored == required_bytes(rollout, masks, 8, finals=4, frame_stack=1)


def test_a_rollout_longer_than_the_ring_is_refused():
    rollout, masks = Writer().rollout(8)
    with pytest.raises(ConfigurationError, match="8 rows cannot hold a rollout of 8 steps"):
        RingBuffer(rollout, masks, 8, num_final_slots=1, device=CPU)


def test_state_dict_continues_exactly_and_another_shape_is_refused():
    ring, other = filled(Writer(truncated=(4,))), filled(Writer(), rollouts=1)
    other.load_state_dict(ring.state_dict())
    assert all(torch.equal(value, ring.state_dict()[name]) for name, value in other.state_dict().items())
    with pytest.raises(ConfigurationError, match="has another shape"):
        filled(Writer(), rows=9).load_state_dict(ring.state_dict())


def test_slots_suffice_where_the_shortest_truncation_is_known():
    assert num_final_slots(rows=100, width=2, min_truncation_step=10) == 22
