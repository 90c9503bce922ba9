"""Two CPU processes: different rollouts, equal weights, one curve."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

Lines = list[dict[str, Any]]


def run_two_ranks(folder: Path, *arguments: str) -> tuple[Lines, Lines]:
    command = [sys.executable, "-m", "tests.support.ddp_worker", str(folder), *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=110)
    (folder / "stderr").write_text(finished.stderr)
    files = [folder / f"rank{rank}.json" for rank in (0, 1)]
    assert all(path.is_file() for path in files), finished.stderr[-3000:]
    return json.loads(files[0].read_text()), json.loads(files[1].read_text())


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Lines, Lines]:
    folder = tmp_path_factory.mktemp("ranks")
    return folder, *run_two_ranks(folder)


def test_ranks_collect_different_rollouts(two_ranks: tuple[Path, Lines, Lines]) -> None:
    _, first, second = two_ranks
    assert all(
        one["actions"] != other["actions"] and one["obs"] != other["obs"]
        for one, other in zip(*two_ranks[1:], strict=True)
    )
    assert len(first) == len(second) == 10


def test_ranks_hold_equal_weights_and_normalisers_after_every_iteration(two_ranks: tuple[Path, Lines, Lines]) -> None:
    _, first, second = two_ranks
    assert [line["weights"] for line in first] == [line["weights"] for line in second]


def test_env_steps_are_counted_over_all_ranks_and_the_curves_agree(two_ranks: tuple[Path, Lines, Lines]) -> None:
    _, first, second = two_ranks
    assert [line["env_steps"] for line in first] == [256 * (n + 1) for n in range(10)]
    assert first[-1]["latest"] == second[-1]["latest"]
    assert "eval/return_mean" in first[-1]["latest"]


def test_the_checkpoint_holds_the_state_of_every_rank(two_ranks: tuple[Path, Lines, Lines]) -> None:
    checkpoint = torch.load(two_ranks[0] / "end.ckpt", weights_only=True)
    ranks = checkpoint["RolloutDataModule"]["ranks"]
    assert len(ranks) == len(checkpoint["ranks"]) == 2
    assert not torch.equal(ranks[0]["generator"], ranks[1]["generator"])


def test_ranks_hold_equal_weights_and_normalisers_of_parts(tmp_path: Path) -> None:
    first, second = run_two_ranks(tmp_path, "parts")
    assert [line["weights"] for line in first] == [line["weights"] for line in second]
    assert all(one["actions"] != other["actions"] for one, other in zip(first, second, strict=True))


def test_a_rank_that_is_told_to_stop_stops_all(tmp_path: Path) -> None:
    first, second = run_two_ranks(tmp_path, "interrupt")
    assert [line["global_step"] for line in first] == [line["global_step"] for line in second] == [1, 2, 3]


def test_ranks_that_collect_ahead_hold_equal_weights_too(tmp_path: Path) -> None:
    first, second = run_two_ranks(tmp_path, "stale")
    assert [line["weights"] for line in first] == [line["weights"] for line in second]
    assert all(one["actions"] != other["actions"] for one, other in zip(first, second, strict=True))
    assert [line["latest"]["rollout/policy_lag"] for line in first] == [0] + 9 * [1]


def test_restarts_of_every_rank_are_counted_and_told(tmp_path: Path) -> None:
    first, second = run_two_ranks(tmp_path, "restart")
    assert first[-1]["latest"]["env/restarts"] == second[-1]["latest"]["env/restarts"] == 1
    assert "Restart 1 of an environment of rank 1, whose episode is dropped." in (tmp_path / "stderr").read_text()
