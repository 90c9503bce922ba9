"""Ranks of a benchmark agree on its commands."""

from pathlib import Path

import torch
from torch import distributed

from app.benchmark.ranks import all_reduce_seconds, decide, total
from tests.support.two_ranks import TwoRanks


def agree(folder: Path) -> None:
    """Write what this rank is told."""
    rank = distributed.get_rank()
    found = (decide(lambda: f"asked rank {rank}"), total(rank + 1.0), all_reduce_seconds(10, torch.device("cpu")) > 0)
    torch.save(found, folder / f"{rank}.pt")


def test_all_ranks_do_what_the_first_decides_and_add_up_their_numbers(ranks: TwoRanks, tmp_path: Path) -> None:
    ranks.run(agree, tmp_path)

    found = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1)]
    assert found == [("asked rank 0", 3.0, True)] * 2
