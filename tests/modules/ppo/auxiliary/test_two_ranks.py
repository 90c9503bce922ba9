"""Auxiliary losses on two CPU ranks: equal weights, and a resume that equals the uninterrupted run."""

from pathlib import Path

from tests.modules.base.test_training_loop import SaveAt
from tests.support.auxiliary_runs import RECURRENT, every_loss, fit
from tests.support.small_runs import weights_hash
from tests.support.two_ranks import TwoRanks


def train(folder: Path, word: str) -> None:
    """Train with every loss, whose teachers are in the folder, and write FOLDER/WORD-RANK.

    Args:
        word: whole, part (two iterations, saved as FOLDER/part.ckpt) or rest, which continues from there.
    """
    part = folder / "part.ckpt"
    callbacks = [SaveAt(2, part, stop=True)] if word == "part" else []
    ckpt_path = part if word == "rest" else None
    ranks = {"trainer_strategy": "ddp", "trainer_devices": 2}
    model = fit(folder, *callbacks, losses=every_loss(folder), ckpt_path=ckpt_path, **ranks, **RECURRENT)
    (folder / f"{word}-{model.global_rank}").write_text(weights_hash(model))


def test_ranks_hold_equal_weights_and_resume_exactly(ranks: TwoRanks, tmp_path: Path) -> None:
    every_loss(tmp_path)  # the teachers
    hashes = {}
    for word in ("whole", "part", "rest"):
        ranks.run(train, tmp_path, word)
        hashes[word] = [(tmp_path / f"{word}-{rank}").read_text() for rank in (0, 1)]

    assert all(first == second for first, second in hashes.values())
    assert hashes["rest"] == hashes["whole"] != hashes["part"]
