"""Two CPU processes with a replay each: different transitions, equal weights, one ratio, and a resume of both."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.ddp_replay_worker import AUTORESETS, HALFWAY, KINDS, train
from tests.support.two_ranks import TwoRanks

Lines = list[dict[str, Any]]
KIND = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def root(ranks: TwoRanks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    ranks.run(train, folder)
    return folder


def lines(root: Path, kind: str, run: str) -> tuple[Lines, Lines]:
    """What both ranks saw, iteration by iteration."""
    first, second = (json.loads((root / kind / run / f"rank{rank}.json").read_text()) for rank in (0, 1))
    return first, second


def of(name: str, seen: Lines) -> list[Any]:
    return [line[name] for line in seen]


@KIND
def test_ranks_collect_different_transitions_and_hold_equal_weights(root: Path, kind: str) -> None:
    first, second = lines(root, kind, "whole")

    assert all(one["obs"] != other["obs"] for one, other in zip(first, second, strict=True))
    assert of("weights", first) == of("weights", second)
    assert len({*of("weights", first)}) == 20


@KIND
def test_steps_are_counted_over_all_ranks_and_the_replay_ratio_is_kept(root: Path, kind: str) -> None:
    """Every rank makes as many updates, on a minibatch of its own each."""
    make_data, _ = KINDS[kind]
    data = make_data()
    for seen in lines(root, kind, "whole"):
        steps, updates = of("env_steps", seen), of("updates", seen)

        assert steps == [2 * data.num_envs * data.train_freq * (n + 1) for n in range(20)]
        learning = steps[-1] - steps[0]  # the first iteration waits for `learning_starts`
        learned = data.batch_size * (data.sequence_length - data.burn_in)  # steps of a minibatch
        assert 2 * learned * updates[-1] == data.replay_ratio * learning and updates[0] == 0
        assert seen[-1]["latest"]["replay/size"] == min(data.rows - 1, 20 * data.train_freq) * data.num_envs


@KIND
def test_a_resumed_run_of_two_ranks_equals_the_uninterrupted_one_bit_for_bit(root: Path, kind: str) -> None:
    for whole, resumed in zip(lines(root, kind, "whole"), lines(root, kind, "resumed"), strict=True):
        for name in ("weights", "actions", "obs", "env_steps", "updates"):
            assert of(name, resumed) == of(name, whole[HALFWAY:])
        assert resumed[-1]["latest"] == whole[-1]["latest"]
    identities = [rank["replay"]["identity"] for rank in saved(root, kind)]
    assert identities[0][0] != identities[1][0], "every rank has a replay of its own"


@KIND
def test_a_rank_without_its_replay_makes_all_of_them_fill_new_ones(root: Path, kind: str) -> None:
    first, second = lines(root, kind, "bereft")

    assert of("weights", first) == of("weights", second)
    assert of("updates", first)[:2] == [lines(root, kind, "whole")[0][HALFWAY - 1]["updates"], 2 * HALFWAY]


def test_all_ranks_start_to_learn_after_the_env_steps_that_count_on_all_of_them(root: Path) -> None:
    first, second = lines(root, "autoresets", "whole")
    begun = next(number for number, updates in enumerate(of("updates", first)) if updates)

    assert of("updates", first) == of("updates", second) and of("env_steps", first) == of("env_steps", second)
    assert first[begun - 1]["env_steps"] < AUTORESETS["learning_starts"] <= first[begun]["env_steps"]
    assert first[begun]["env_steps"] < 16 * (begun + 1), "some steps did not count"


def saved(root: Path, kind: str) -> list[dict[str, Any]]:
    """What the checkpoint holds of each rank's data."""
    return torch.load(root / kind / "checkpoints" / "last.ckpt", weights_only=True)["ReplayDataModule"]["ranks"]
