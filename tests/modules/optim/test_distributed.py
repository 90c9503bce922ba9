"""Two CPU processes: different rollouts, equal weights, one curve."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.ddp_worker import train
from tests.support.two_ranks import TwoRanks

Lines = list[dict[str, Any]]


def trained(ranks: TwoRanks, folder: Path, kind: str = "plain") -> tuple[Lines, Lines]:
    """Train on two ranks; what both saw, iteration by iteration."""
    ranks.run(train, folder, kind)
    return lines(folder)


def lines(folder: Path) -> tuple[Lines, Lines]:
    """What both ranks saw."""
    first, second = (json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1))
    return first, second


@pytest.fixture(scope="module")
def two_runs(ranks: TwoRanks, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Lines, Lines]:
    folder = tmp_path_factory.mktemp("ranks")
    return folder, *trained(ranks, folder)


def test_ranks_collect_different_rollouts(two_runs: tuple[Path, Lines, Lines]) -> None:
    _, first, second = two_runs
    assert all(
        one["actions"] != other["actions"] and one["obs"] != other["obs"]
        for one, other in zip(*two_runs[1:], strict=True)
    )
    assert len(first) == len(second) == 10


def test_ranks_hold_equal_weights_and_normalisers_after_every_iteration(two_runs: tuple[Path, Lines, Lines]) -> None:
    _, first, second = two_runs
    assert [line["weights"] for line in first] == [line["weights"] for line in second]


def test_env_steps_are_counted_over_all_ranks_and_the_curves_agree(two_runs: tuple[Path, Lines, Lines]) -> None:
    _, first, second = two_runs
    assert [line["env_steps"] for line in first] == [256 * (n + 1) for n in range(10)]
    assert first[-1]["latest"] == second[-1]["latest"]
    assert "eval/return_mean" in first[-1]["latest"]


def test_the_checkpoint_holds_the_state_of_every_rank(two_runs: tuple[Path, Lines, Lines]) -> None:
    checkpoint = torch.load(two_runs[0] / "end.ckpt", weights_only=True)
    ranks = checkpoint["RolloutDataModule"]["ranks"]
    assert len(ranks) == len(checkpoint["ranks"]) == 2
    assert not torch.equal(ranks[0]["generator"], ranks[1]["generator"])


def test_ranks_hold_equal_weights_and_normalisers_of_parts(ranks: TwoRanks, tmp_path: Path) -> None:
    first, second = trained(ranks, tmp_path, "parts")
    assert [line["weights"] for line in first] == [line["weights"] for line in second]
    assert all(one["actions"] != other["actions"] for one, other in zip(first, second, strict=True))


def test_a_rank_that_is_told_to_stop_stops_all(ranks: TwoRanks, tmp_path: Path) -> None:
    first, second = trained(ranks, tmp_path, "interrupt")
    assert [line["global_step"] for line in first] == [line["global_step"] for line in second] == [1, 2, 3]


def test_ranks_that_collect_ahead_hold_equal_weights_too(ranks: TwoRanks, tmp_path: Path) -> None:
    first, second = trained(ranks, tmp_path, "policy_lag")
    assert [line["weights"] for line in first] == [line["weights"] for line in second]
    assert all(one["actions"] != other["actions"] for one, other in zip(first, second, strict=True))
    assert [line["latest"]["rollout/policy_lag"] for line in first] == [0] + 9 * [1]


def test_restarts_of_every_rank_are_counted_and_told(ranks: TwoRanks, tmp_path: Path) -> None:
    printed = ranks.run(train, tmp_path, "restart")

    first, second = lines(tmp_path)
    assert first[-1]["latest"]["env/restarts"] == second[-1]["latest"]["env/restarts"] == 1
    assert "Restart 1 of an environment of rank 1, whose episode is dropped." in printed


@pytest.mark.parametrize("kind", ["large", "large policy_lag"])
def test_ranks_hold_equal_weights_with_the_settings_for_large_rollouts(
    ranks: TwoRanks, tmp_path: Path, kind: str
) -> None:
    first, second = trained(ranks, tmp_path, kind)
    assert len(first) == 10 and [line["weights"] for line in first] == [line["weights"] for line in second]
    assert all(one["actions"] != other["actions"] for one, other in zip(first, second, strict=True))
    assert first[0]["latest"]["train/learning_rate"] == pytest.approx(1e-3 * (64 / 16) ** 0.5)
