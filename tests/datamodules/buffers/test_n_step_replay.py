import pytest
import torch

from datamodules.buffers.n_step_replay import NStepReplayBuffer
from datamodules.buffers.ring_buffer import RingBuffer
from datamodules.buffers.sum_tree import SumTree
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import ReplayBatch
from tests.support.rollout_fixtures import PartsWriter, Writer

CPU = torch.device("cpu")


def replay_of(
    writer: Writer,
    n_step: int = 1,
    rows: int = 32,
    rollouts: int = 4,
    alpha: float = 0.0,
    finals: int = 16,
    stored_stack: int | None = None,
) -> NStepReplayBuffer:
    replay = None
    for _ in range(rollouts):
        rollout, masks = writer.rollout(4)
        if replay is None:
            stack = stored_stack or writer.stack
            ring = RingBuffer(rollout, masks, rows, num_final_slots=finals, frame_stack=stack, device=CPU)
            priorities = SumTree(rows * 2, alpha, CPU) if alpha else None
            replay = NStepReplayBuffer(ring, n_step, CPU, has_invalid_steps=bool(writer.invalid), priorities=priorities)
        replay.write(rollout, masks)
        replay.ring.commit_()
    return replay


def drawn(replay: NStepReplayBuffer, number: int = 4000) -> ReplayBatch:
    return replay.sample(replay.noise(2, number, torch.Generator().manual_seed(0)))


def at(replay: NStepReplayBuffer, *times: int) -> ReplayBatch:
    return replay.gather(torch.tensor(times) % replay.ring.capacity * 2)


def test_n_steps_without_an_end():
    window = at(replay_of(Writer(), n_step=3), 5)
    assert window.reward.tolist() == [[5, 6, 7]]
    assert (window.num_steps.tolist(), window.terminated.tolist(), window.loss_weight.tolist()) == ([3], [False], [1])
    assert window.next_obs.tolist() == [[8, 0]]


def test_a_window_ends_where_the_episode_terminates():
    window = at(replay_of(Writer(terminated=(6,)), n_step=3), 5)
    assert window.reward.tolist() == [[5, 6, 0]]
    assert (window.num_steps.tolist(), window.terminated.tolist()) == ([2], [True])


def test_a_truncated_window_is_followed_by_its_true_last_observation():
    window = at(replay_of(Writer(truncated=(6,)), n_step=3), 5)
    assert (window.num_steps.tolist(), window.terminated.tolist()) == ([2], [False])
    assert window.next_obs.tolist() == [[1006, 0]]


def test_terminated_and_truncated_at_once_is_terminated():
    window = at(replay_of(Writer(terminated=(6,), truncated=(6,)), n_step=3), 5)
    assert window.terminated.tolist() == [True]


def test_extras_and_masks_are_those_of_the_first_step_and_of_what_follows():
    window = at(replay_of(Writer(truncated=(9,))), 4, 9)
    assert window.extras["option"].tolist() == [4, 9]
    assert window.extras["action_mask"].tolist() == [[True, False], [False, True]]
    assert window.next_masks["action_mask"].tolist() == [[False, True], [True, True]]


@pytest.mark.parametrize("alpha", [0.0, 0.6])
@pytest.mark.parametrize("rollouts", [2, 7, 8, 30])
def test_no_window_crosses_the_write_head(rollouts: int, alpha: float):
    replay = replay_of(Writer(truncated=(5, 17)), n_step=3, rows=13, rollouts=rollouts, alpha=alpha)
    newest, found = 4 * rollouts, drawn(replay)
    starts = found.obs[..., 0]
    assert torch.equal(found.reward[..., 0], starts)
    assert starts.min() == max(0, newest - 12)
    assert starts.max() == newest - 3
    ends = starts + found.num_steps
    follows = torch.where(found.next_obs[..., 0] >= 1000, found.next_obs[..., 0] - 999, found.next_obs[..., 0])
    assert torch.equal(follows, ends)


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_every_step_is_equally_likely(alpha: float):
    replay = replay_of(Writer(), rows=13, rollouts=9, alpha=alpha)
    counts = drawn(replay, 12_000).indices.flatten().bincount(minlength=26)
    assert (counts > 0).sum() == 24
    assert counts[counts > 0].min() > 850


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_steps_that_do_not_count_are_never_drawn(alpha: float):
    writer = Writer(terminated=(4, 9))
    writer.invalid = (5, 10)
    found = drawn(replay_of(writer, alpha=alpha))
    assert found.loss_weight.min() > 0
    assert not torch.isin(found.obs[..., 0], torch.tensor([5.0, 10.0])).any()


def test_a_window_ends_before_a_step_that_does_not_count():
    writer = Writer()
    writer.invalid = (6,)
    window = at(replay_of(writer, n_step=3), 5)
    assert (window.num_steps.tolist(), window.next_obs.tolist()) == ([1], [[6, 0]])


def test_a_window_whose_true_last_observation_is_lost_has_no_weight():
    replay = replay_of(Writer(truncated=(2, 5, 6)), finals=4)
    assert at(replay, 2, 5, 6).loss_weight.tolist() == [0, 1, 1]


def test_windows_of_one_step_end_as_longer_ones_do():
    writer = Writer(terminated=(5, 9), truncated=(2, 7, 9))
    writer.invalid = (11,)
    window = at(replay_of(writer, finals=2), 4, 5, 7, 9, 11)
    assert window.reward.tolist() == [[4], [5], [7], [9], [0]]
    assert window.num_steps.tolist() == window.loss_weight.tolist() == [1, 1, 1, 1, 0]
    assert window.terminated.tolist() == [False, True, False, True, False]
    assert window.next_obs[:, 0].tolist() == [5, 6, 1007, 10, 11]


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_stacked_frames_never_reach_behind_the_oldest_row(alpha: float):
    writer = Writer(stack=3, terminated=(20,))
    replay = replay_of(writer, n_step=2, rows=13, rollouts=8, alpha=alpha)
    found = drawn(replay)
    for t in found.reward[..., 0].unique().tolist():
        chosen = (found.reward[..., 0] == t) & (found.obs[..., -1, 1] == 0)
        assert (found.obs[chosen] == writer.obs(int(t))[0]).all()


@pytest.mark.parametrize(("n_step", "truncated"), [(1, ()), (3, ()), (1, (14,)), (3, (11,))])
def test_stacked_frames_after_the_newest_step_are_those_before_it(n_step: int, truncated: tuple[int, ...]):
    writer = Writer(stack=3, terminated=(2,), truncated=truncated)

    window = at(replay_of(writer, n_step=n_step, rows=13), 16 - n_step)

    assert torch.equal(window.next_obs, writer.obs(16)[:1])


def test_stacked_frames_after_the_newest_step_are_those_before_it_also_beside_a_truncated_window():
    writer = Writer(stack=3, terminated=(2,), truncated=(11,))

    windows = at(replay_of(writer, rows=13), 11, 15)

    assert torch.equal(windows.next_obs, torch.stack([writer.obs(1011)[0], writer.obs(16)[0]]))


def test_priorities_decide_what_is_drawn_and_new_steps_get_the_largest():
    writer = Writer()
    replay = replay_of(writer, alpha=1.0)
    entries = torch.arange(32)
    replay.update_priorities(entries, torch.where(entries == 10, 8.0, 0.0))
    assert set(drawn(replay, 64).indices.flatten().tolist()) == {10}
    replay.write(*writer.rollout(4))
    replay.ring.commit_()
    assert torch.allclose(replay.priorities.levels[0][32:40], replay.priorities.maximum)


def test_weights_undo_the_bias_of_priorities():
    replay = replay_of(Writer(), alpha=1.0)
    replay.update_priorities(torch.arange(32), torch.arange(32) + 1.0)
    replay.beta.fill_(1.0)
    found = drawn(replay)
    mean = (found.loss_weight * found.reward[..., 0]).sum() / found.loss_weight.sum()
    assert abs(mean - 7.5) < 0.1


def test_after_a_cut_nothing_reaches_over_it():
    writer = Writer()
    replay = replay_of(writer, n_step=3, alpha=0.6)
    replay.cut_()
    replay.write(*writer.rollout(4))
    replay.ring.commit_()
    window = at(replay, 14, 15)
    assert (window.num_steps.tolist(), window.loss_weight.tolist()) == ([1, 0], [1, 0])
    assert (drawn(replay).obs[..., 0] != 15).all()


def test_sampling_allocates_nothing_that_stays():
    replay = replay_of(Writer(), alpha=0.6)
    before = {name: value.data_ptr() for name, value in replay.ring.state_dict().items()}
    for _ in range(50):
        drawn(replay, 8)
    assert {name: value.data_ptr() for name, value in replay.ring.state_dict().items()} == before


def test_state_dict_continues_exactly():
    one, two = replay_of(Writer(), alpha=0.6), replay_of(Writer(truncated=(3,)), alpha=0.6)
    one.update_priorities(torch.arange(8), torch.arange(8.0))
    two.load_state_dict(one.state_dict())
    assert torch.equal(drawn(one).obs, drawn(two).obs)


def resumed(saved: NStepReplayBuffer, n_step: int = 1, alpha: float = 0.0, stack: int = 1) -> NStepReplayBuffer:
    """An empty replay of other settings that continues from a saved one."""
    rollout, masks = Writer(stack=stack).rollout(4)
    rows, finals = saved.ring.capacity, saved.ring.num_final_slots
    ring = RingBuffer(rollout, masks, rows, num_final_slots=finals, frame_stack=stack, device=CPU)
    priorities = SumTree(rows * 2, alpha, CPU) if alpha else None
    replay = NStepReplayBuffer(ring, n_step, CPU, has_invalid_steps=saved.has_invalid_steps, priorities=priorities)
    replay.load_state_dict(saved.state_dict())
    return replay


@pytest.mark.parametrize("rollouts", [3, 11])
@pytest.mark.parametrize("stack", [1, 3])
@pytest.mark.parametrize(("before", "after"), [(1, 1), (3, 1), (1, 3)])
@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_a_prioritised_replay_draws_every_window_of_a_replay_of_other_settings(
    rollouts: int, stack: int, before: int, after: int, alpha: float
):
    saved = replay_of(Writer(stack=stack), n_step=before, rollouts=rollouts, alpha=alpha)
    uniform = replay_of(Writer(stack=stack), n_step=after, rollouts=rollouts)

    replay = resumed(saved, n_step=after, alpha=0.6, stack=stack)

    assert set(drawn(replay).indices.flatten().tolist()) == set(drawn(uniform).indices.flatten().tolist())
    assert torch.isfinite(drawn(replay).loss_weight).all()


def test_a_resumed_replay_of_another_alpha_weighs_the_same_errors():
    saved = replay_of(Writer(), alpha=0.5)
    saved.update_priorities(torch.tensor([4, 5]), torch.tensor([3.0, 0.2]))

    replay = resumed(saved, alpha=1.0)

    assert replay.priorities is not None
    assert replay.priorities.levels[0][[4, 5]].tolist() == pytest.approx([3.0, 0.2], rel=1e-5)
    assert float(replay.priorities.maximum) == pytest.approx(3.0, rel=1e-5)


def test_a_uniform_replay_continues_a_prioritised_one():
    saved = replay_of(Writer(), alpha=0.6)

    assert torch.equal(drawn(resumed(saved)).indices, drawn(replay_of(Writer())).indices)


@pytest.mark.parametrize("alpha", [0.0, 0.6])
@pytest.mark.parametrize("stack", [1, 3])
def test_parts_come_back_as_from_a_buffer_of_each_alone(stack: int, alpha: float):
    ends = {"terminated": (3, 9), "truncated": (6, 13), "stack": stack}
    whole = drawn(replay_of(PartsWriter(**ends), n_step=2, alpha=alpha), 50)
    assert whole.obs["images"].dtype == torch.uint8 and whole.obs["vector"].dtype == torch.float32
    for name in ("images", "vector"):
        writer = PartsWriter(**ends, only=name)
        writer_stack = stack if name == "images" else 1
        alone = replay_of(writer, n_step=2, alpha=alpha, stored_stack=writer_stack)
        found = alone.gather(whole.indices.flatten())
        assert torch.equal(whole.obs[name], found.obs.view_as(whole.obs[name]))
        assert torch.equal(whole.next_obs[name], found.next_obs.view_as(whole.next_obs[name]))
        assert torch.equal(whole.reward, found.reward.view_as(whole.reward))


def test_a_buffer_of_parts_is_restored_exactly_and_one_with_other_parts_refused():
    replay, other = replay_of(PartsWriter(truncated=(6,)), n_step=2), replay_of(PartsWriter(), n_step=2, rollouts=1)
    other.load_state_dict(replay.state_dict())
    assert torch.equal(drawn(other, 20).obs["images"], drawn(replay, 20).obs["images"])
    with pytest.raises(ConfigurationError, match="frames is missing in the file"):
        replay_of(Writer(), n_step=2).load_state_dict(replay.state_dict())
