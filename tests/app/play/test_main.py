"""`play` writes the episodes of the best checkpoint, and says in one sentence what it cannot do."""

import sys
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


def test_without_a_name_an_mp4_is_written(trained: Path, run: Run) -> None:
    pytest.importorskip("imageio_ffmpeg", reason="needs the extra `video`")

    said = run("play", "--ckpt_path", str(trained), "--max_steps", "3")

    assert said.code == 0 and (trained / "videos" / "play.mp4").is_file() and "GIF" not in said.out


def test_without_a_name_and_the_packages_of_mp4_a_gif_is_written(
    trained: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)

    said = run("play", "--ckpt_path", str(trained), "--max_steps", "3")

    gif = trained / "videos" / "play.gif"
    assert said.code == 0 and gif.is_file() and f"Video: {gif}" in said.out
    (reason,) = [line for line in said.out.splitlines() if "because an MP4 needs" in line]
    assert "pip install -e '.[video]'" in reason


@pytest.mark.parametrize(
    ("video", "sentence"), [("out.mp4", "An MP4 needs imageio"), ("out.avi", "ends with neither .mp4 nor .gif")]
)
def test_a_video_that_cannot_be_written_is_refused_before_the_checkpoint_is_read(
    run: Run, monkeypatch: pytest.MonkeyPatch, video: str, sentence: str
) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)

    said = run("play", "--ckpt_path", "nothing.ckpt", "--video", "a.gif", video)

    assert said.code == 2 and sentence in said.err and said.err.count("\n") == 1


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
