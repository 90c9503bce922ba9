"""Active dynamics on two CPU ranks: what they store differs, what they know and where they explore does not."""

import json
from pathlib import Path

import pytest
import torch

from tests.support.ddp_dynamics_worker import train
from tests.support.two_ranks import TwoRanks


@pytest.mark.parametrize("num_updates", [0, 1])
def test_ranks_share_weights_posterior_and_box(num_updates: int, ranks: TwoRanks, tmp_path: Path) -> None:
    ranks.run(train, tmp_path, num_updates)

    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1))
    assert first["stored"] != second["stored"]
    assert first["weights"] == second["weights"]
    if num_updates:
        lowest, highest = torch.tensor(first["bounds"])
        assert (lowest < highest).all() and first["bounds"] == second["bounds"]
        refitted = [torch.tensor(rank["stored"]).flatten(0, -2)[:20] for rank in (first, second)]
        assert all((lowest <= each).all() and (each <= highest).all() for each in refitted)
