"""`play` writes the episodes of the best checkpoint, and says in one sentence what it cannot do."""

import importlib.util
from pathlib import Path

import pytest
from PIL import Image

from tests.app.conftest import Run


def test_the_newest_runs_best_checkpoint_is_played_as_a_gif(trained: Path, run: Run) -> None:
    said = run("play", "--video", "out.gif", "--episodes", "2", "--max_steps", "5")

    with Image.open("out.gif") as picture:
        assert picture.n_frames > 5 and picture.width == 480
    assert "best-env_steps=512" in said.out and "episode 2: 5 steps, return 5" in said.out


@pytest.mark.parametrize("wanted", ["best", "last"])
def test_the_newest_runs_checkpoints_have_names(trained: Path, run: Run, wanted: str) -> None:
    said = run("play", "--ckpt_path", wanted, "--video", "out.gif", "--max_steps", "3")

    assert said.out.startswith(f"Checkpoint: runs/ppo_cartpole/version_0/checkpoints/{wanted}")


def test_sampled_actions_and_seeds_act(trained: Path, run: Run) -> None:
    outcomes = [run("play", "--video", "out.gif", *words).out for words in ([], ["--seed", "2"], ["--sample"])]

    assert len({*outcomes}) == 3


def test_an_mp4_is_written_or_the_missing_package_is_named(trained: Path, run: Run) -> None:
    installed = all(importlib.util.find_spec(name) for name in ("imageio", "imageio_ffmpeg"))

    said = run("play", "--ckpt_path", str(trained), "--max_steps", "3")

    assert (trained / "videos" / "play.mp4").is_file() == installed
    assert said.code == (0 if installed else 2)
    assert installed or "pip install -e '.[video]'" in said.err


def test_what_cannot_be_played_is_said_in_one_sentence(folder: Path, run: Run) -> None:
    for words, sentence in {
        ("--ckpt_path", "nothing.ckpt"): "There is no checkpoint nothing.ckpt",
        (): "There is no run",
        ("--ckpt_path", "last"): "There is no run",
        ("--config", "small.yaml"): "name it with --ckpt_path",
        ("--episodes", "0"): "must be at least 1",
    }.items():
        said = run("play", *words)
        assert said.code == 2 and sentence in said.err and said.err.count("\n") == 1
