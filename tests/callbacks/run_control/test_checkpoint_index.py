from pathlib import Path
from typing import Any

import pytest

from callbacks.run_control.checkpoint import AtomicCheckpointIO, RunCheckpoint
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.checkpoint_index import environment_of, index_path, read_index, sha256, verify_index


def test_every_checkpoint_of_a_run_has_an_index_and_loses_it_with_itself(make_run: Any) -> None:
    run = make_run(RunCheckpoint(), iterations=6).fit()

    folder = run.folder / "checkpoints"
    best, last = sorted(folder.glob("*.ckpt"))
    assert sorted(folder.glob("*.json")) == [index_path(best), index_path(last)]
    (entry, *_), score = read_index(best), float(run.trainer.checkpoint_callback.best_model_score)
    assert (entry.score, entry.monitor, entry.mode) == (score, "eval/return_mean", "max")
    assert read_index(last)[0].iteration == 6 and read_index(last)[0].env_steps == run.module.env_steps
    assert read_index(last)[0].best == str(best) and read_index(last)[0].environment == ["CartPole-v1", {}]
    assert read_index(last)[0].sha256 == sha256(last)


def saved(path: Path, step: int) -> bytes:
    AtomicCheckpointIO().save_checkpoint({"state_dict": {}, "global_step": step}, path)
    return path.read_bytes()


def test_a_kill_between_the_index_and_the_checkpoint_damages_neither(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    before, _ = saved(path, 1), saved(path, 2)

    verify_index(path)
    path.write_bytes(before)
    verify_index(path)

    assert [entry.iteration for entry in read_index(path)] == [2, 1]


def test_saves_cut_short_one_after_the_other_damage_nothing(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    whole = saved(path, step=1)
    for step in (2, 3, 4):
        saved(path, step)
        path.write_bytes(whole)  # as after a kill before the checkpoint took its place

    verify_index(path)

    assert sha256(path) in [entry.sha256 for entry in read_index(path)]


@pytest.mark.parametrize("place", [0, 40, -1])
def test_a_changed_byte_is_told(tmp_path: Path, place: int) -> None:
    content = bytearray(saved(tmp_path / "last.ckpt", 1))
    content[place] ^= 1
    (tmp_path / "last.ckpt").write_bytes(content)

    with pytest.raises(ConfigurationError, match="is damaged: its SHA-256"):
        AtomicCheckpointIO().load_checkpoint(tmp_path / "last.ckpt")


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '[{"iteration": 1}]', "\ufffd", pytest.param("[" * 100_000, id="deep")]
)
def test_an_index_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    saved(tmp_path / "last.ckpt", 1)
    index_path(tmp_path / "last.ckpt").write_text(text)

    assert read_index(tmp_path / "last.ckpt") == []
    verify_index(tmp_path / "last.ckpt")


def test_environments_are_told_apart_by_their_settings_but_not_by_how_they_are_drawn() -> None:
    one = environment_of({"env": "A", "env_kwargs": {"b": (1,), "a": 2}})

    assert one == environment_of({"env": "A", "env_kwargs": {"a": 2, "b": [1], "render_mode": "human"}})
    assert one != environment_of({"env": "A", "env_kwargs": {"a": 3, "b": (1,)}})
    assert environment_of({"env": "A", "env_kwargs": None}) == environment_of({"env": "A"})
