"""A run that is resumed on another number of ranks ends at the env steps asked for."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.ddp_resume_worker import train, train_part
from tests.support.two_ranks import TwoRanks

STEPS = 1280
"""Environment steps of the whole run; an iteration takes 128 of them on each rank."""


def counters(two: TwoRanks, function: Any, folder: Path, ranks: int) -> dict[str, Any]:
    """Train on one or two ranks; the counters at the end."""
    if ranks == 2:
        two.run(function, folder, ranks)
    else:
        function(folder, ranks)
    return json.loads((folder / "counters.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)], ids=["two to one", "one to two"])
def test_a_run_resumed_on_other_ranks_ends_within_an_iteration(
    ranks: TwoRanks, tmp_path: Path, before: int, after: int
) -> None:
    part = counters(ranks, train_part, tmp_path, before)

    resumed = counters(ranks, train, tmp_path, after)

    assert part["env_steps"] == 3 * 128 * before
    left = STEPS - part["env_steps"]
    assert resumed["global_step"] == 3 + -(-left // (128 * after))
    assert STEPS <= resumed["env_steps"] < STEPS + 128 * after
    assert resumed["progress"] == 1.0
