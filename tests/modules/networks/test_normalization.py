"""Running statistics against numpy's, alone and over two ranks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

from modules.networks.normalization import RewardCenterer, RewardScaler, RunningNormalizer
from tests.support.two_ranks import TwoRanks


def test_statistics_equal_those_of_all_batches_together() -> None:
    normalizer = RunningNormalizer((3,))
    batches = [torch.randn(size, 4, 3) * 5 + 1000 for size in (2, 7, 30)]

    for batch in batches:
        normalizer.update_(batch)

    everything = torch.cat(batches).reshape(-1, 3).double().numpy()
    np.testing.assert_allclose(normalizer.mean.numpy(), everything.mean(0), rtol=1e-12)
    np.testing.assert_allclose(normalizer.var.numpy(), everything.var(0), rtol=1e-9)
    assert normalizer.count.item() == len(everything)


def test_invalid_rows_have_no_effect_whatever_stands_in_them() -> None:
    x, valid = torch.randn(6, 4, 2, 2), torch.rand(6, 4) < 0.5
    masked, alone = RunningNormalizer((2, 2)), RunningNormalizer((2, 2))

    masked.update_(torch.where(valid[..., None, None], x, torch.nan), valid)
    masked.update_(x, torch.zeros_like(valid))
    alone.update_(x[valid])

    torch.testing.assert_close(masked.state_dict(), alone.state_dict())


def test_forward_normalises_and_clips_and_leaves_the_statistics_alone() -> None:
    normalizer = RunningNormalizer((2,), clip=1.5)
    x = torch.randn(200, 2) * 4 - 7
    normalizer.update_(x)
    before = {name: buffer.clone() for name, buffer in normalizer.state_dict().items()}

    y = normalizer(x)

    expected = np.clip((x.numpy() - x.numpy().mean(0)) / x.numpy().std(0), -1.5, 1.5)
    np.testing.assert_allclose(y.numpy(), expected, rtol=0, atol=1e-5)
    assert y.dtype == torch.float32
    torch.testing.assert_close(normalizer.state_dict(), before, rtol=0, atol=0)


def test_before_the_first_update_nothing_changes() -> None:
    normalizer, scaler = RunningNormalizer((2,)), RewardScaler(0.99)
    x = torch.randn(5, 2) * 1e6

    normalizer.update_(x, torch.zeros(5, dtype=torch.bool))

    assert torch.equal(normalizer(x), x)
    assert torch.equal(scaler.scale(x), x)


def test_a_constant_entry_stays_finite_and_bytes_are_taken() -> None:
    normalizer = RunningNormalizer((2,))
    x = torch.full((9, 2), 200, dtype=torch.uint8)

    normalizer.update_(x)

    assert torch.equal(normalizer(x), torch.zeros(9, 2))


def test_statistics_travel_in_the_state_dict_and_keep_their_addresses() -> None:
    source, copy = RunningNormalizer((3,)), RunningNormalizer((3,))
    source.update_(torch.randn(50, 3))
    addresses = [buffer.data_ptr() for buffer in copy.buffers()]

    copy.load_state_dict(source.state_dict())
    more = torch.randn(20, 3)
    source.update_(more)
    copy.update_(more)

    torch.testing.assert_close(copy.state_dict(), source.state_dict(), rtol=0, atol=0)
    assert [buffer.data_ptr() for buffer in copy.buffers()] == addresses


def discounted_returns(rewards: np.ndarray, ended: np.ndarray, gamma: float) -> np.ndarray:
    """Row by row, forwards, as one long series."""
    returns, running = np.zeros(rewards.shape), np.zeros(rewards.shape[1])
    for t in range(len(rewards)):
        running = gamma * running + rewards[t]
        returns[t] = running
        running = np.where(ended[t], 0.0, running)
    return returns


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return_across_rollouts() -> None:
    scaler = RewardScaler(gamma=0.9, clip=2.0)
    reward, ended = torch.randn(20, 3) + 1, torch.rand(20, 3) < 0.2

    for rollout in (slice(0, 8), slice(8, 20)):
        scaler.update_(reward[rollout], ended[rollout])

    deviation = discounted_returns(reward.double().numpy(), ended.numpy(), 0.9).std()
    np.testing.assert_allclose(scaler.returns.var.item(), deviation**2, rtol=1e-10)
    expected = np.clip(reward.numpy() / deviation, -2, 2)
    np.testing.assert_allclose(scaler.scale(reward).numpy(), expected, rtol=0, atol=1e-6)


class Operations(TorchFunctionMode):
    """Count the functions of torch that are called."""

    count = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return function(*args, **(kwargs or {}))


def test_eight_times_as_long_a_rollout_needs_few_more_operations() -> None:
    counts = []
    for steps in (32, 256):
        with Operations() as operations:
            RewardScaler(0.9).update_(torch.randn(steps, 3), torch.rand(steps, 3) < 0.1)
        counts.append(operations.count)

    assert counts[1] < 1.5 * counts[0]


def test_a_phantom_step_neither_counts_nor_touches_the_running_return() -> None:
    with_phantom, without = RewardScaler(0.9), RewardScaler(0.9)
    reward = torch.tensor([[1.0], [2.0], [torch.nan], [3.0]])
    ended, valid = torch.tensor([[False], [True], [False], [False]]), torch.tensor([[True], [True], [False], [True]])

    with_phantom.update_(reward, ended, valid)
    without.update_(reward[valid[:, 0]], ended[valid[:, 0]])

    torch.testing.assert_close(with_phantom.state_dict(), without.state_dict())
    assert with_phantom.running is not None and with_phantom.running.item() == 3.0


def test_the_running_return_belongs_to_the_rank_and_starts_anew_with_other_rows() -> None:
    scaler = RewardScaler(0.9)
    scaler.update_(torch.ones(4, 3), torch.zeros(4, 3, dtype=torch.bool))

    scaler.update_(torch.ones(1, 2), torch.zeros(1, 2, dtype=torch.bool))

    assert scaler.running is not None and scaler.running.tolist() == [1.0, 1.0]
    assert not any("running" in name for name in scaler.state_dict())


def test_reward_scaler_refuses_a_gamma_outside_the_unit_interval() -> None:
    with pytest.raises(ValueError, match="it must lie in"):
        RewardScaler(1.01)


def update_on_rank(folder: Path, batches: list[torch.Tensor]) -> None:
    """Merge this rank's share twice, and leave the statistics behind."""
    normalizer, rank = RunningNormalizer((3,)), dist.get_rank()
    for batch in batches:
        share = torch.arange(len(batch)) % 3 == 0
        normalizer.update_(batch, share if rank == 0 else ~share)
    torch.save(normalizer.state_dict(), folder / f"{rank}.pt")


def test_two_ranks_hold_the_statistics_of_all_their_data(ranks: TwoRanks, tmp_path: Path) -> None:
    batches = [torch.randn(30, 3) * 2 + 50, torch.randn(12, 3)]
    alone = RunningNormalizer((3,))
    for batch in batches:
        alone.update_(batch)

    ranks.run(update_on_rank, tmp_path, batches)

    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    torch.testing.assert_close(first, alone.state_dict())


def test_a_row_that_begins_an_episode_forgets_the_return_it_ran_up() -> None:
    scaler, never = RewardScaler(0.9), torch.zeros(1, 2, dtype=torch.bool)
    scaler.update_(torch.ones(1, 2), never)

    scaler.update_(torch.ones(1, 2), never, first=torch.tensor([True, False]))

    assert scaler.running is not None
    torch.testing.assert_close(scaler.running, torch.tensor([1.0, 1.9], dtype=torch.float64))


def test_the_mean_of_rewards_is_an_exponential_average_without_the_bias_of_its_start() -> None:
    centerer, beta, reward = RewardCenterer(0.1), 0.1, torch.randn(12, 3) + 5.0
    valid = torch.rand(12, 3) < 0.7
    valid[4] = False
    for part in (slice(0, 5), slice(5, 12)):
        centerer.update_(torch.where(valid[part], reward[part], torch.nan), valid[part])

    total = weight = 0.0
    for step, counts in zip(reward.double(), valid, strict=True):
        if counts.any():
            total, weight = (1 - beta) * total + beta * float(step[counts].mean()), (1 - beta) * weight + beta
    assert float(centerer.mean) == pytest.approx(total / weight, rel=1e-6)
    torch.testing.assert_close(centerer(reward), reward - total / weight)


def test_rewards_are_not_centred_before_the_first_update_and_wrong_step_sizes_are_refused() -> None:
    reward = torch.randn(4, 2)
    assert torch.equal(RewardCenterer(0.1)(reward), reward)
    with pytest.raises(ValueError, match=r"beta is 1\.5; it must be positive and at most 1"):
        RewardCenterer(1.5)
