"""Minibatches of transitions and of sequences, shuffled and strided."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, multiprocessing

from modules.ppo.batch import PPOBatch


def batch(*, recurrent: bool = False) -> PPOBatch:
    """Twelve transitions, or three steps of four rows, each of whose numbers says which it is."""
    shape = (3, 4) if recurrent else (12,)
    number = torch.arange(12.0).view(shape)
    state = {"hidden": torch.arange(4.0).unsqueeze(1)} if recurrent else {}
    columns: list[Any] = [number.unsqueeze(-1), number.long(), *[number] * 4, number >= 0, None]
    return PPOBatch(*columns, number < 0 if recurrent else None, state)


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("shuffled", [False, True])
def test_minibatches_hold_every_part_once_in_all_columns_alike(recurrent: bool, shuffled: bool) -> None:
    whole = batch(recurrent=recurrent)
    order = torch.randperm(whole.size) if shuffled else None

    parts = list(whole.minibatches(2, order))

    assert [part.size for part in parts] == [whole.size // 2] * 2
    assert torch.cat([part.advantage.flatten() for part in parts]).sort().values.tolist() == list(range(12))
    assert all(torch.equal(part.obs[..., 0], part.advantage) and part.mask is None for part in parts)
    if recurrent:
        assert all(torch.equal(part.state["hidden"][:, 0], part.advantage[0]) for part in parts)


def test_strided_minibatches_are_views_of_every_nth_row() -> None:
    whole = batch()

    third, second, first = whole.minibatches(3, None)

    assert [part.target.tolist()[:2] for part in (first, second, third)] == [[0, 3], [1, 4], [2, 5]]
    columns: list[tuple[Tensor, Tensor]] = list(zip(whole[:6], first[:6], strict=True))
    assert all(part.untyped_storage().data_ptr() == column.untyped_storage().data_ptr() for column, part in columns)


def test_shuffled_minibatches_are_successive_pieces_of_the_permutation() -> None:
    order = torch.randperm(12)

    parts = batch().minibatches(3, order)

    assert [part.target.tolist() for part in parts] == order.view(3, 4).tolist()


def share_on_rank(rank: int, folder: str) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    parts = batch()
    parts = parts._replace(valid=torch.zeros(12, dtype=torch.bool))
    advantage, loss_scale = parts.normalized_advantage()
    torch.save([advantage, loss_scale], f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def test_rows_of_which_no_rank_has_a_valid_one_weigh_nothing(tmp_path: Path) -> None:
    multiprocessing.start_processes(share_on_rank, (str(tmp_path),), nprocs=2, start_method="fork")

    for rank in range(2):
        advantage, loss_scale = torch.load(tmp_path / f"{rank}.pt")
        assert loss_scale == 0 and advantage.isfinite().all()
