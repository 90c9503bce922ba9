"""Videos hold the frames that were added, the last one always."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from callbacks.video.encoding import GIF_FRAMES, GIF_WIDTH, video_writer
from datamodules.core.errors import ConfigurationError


def frames(count: int, width: int = 64) -> list[np.ndarray]:
    """Frames in which a white bar moves; the last of several is white."""
    shown = [np.zeros((32, width, 3), np.uint8) for _ in range(count)]
    for index, frame in enumerate(shown[1:], start=1):
        frame[:, index % width] = 255
    shown[-1][:] = 0 if count == 1 else 255
    return shown


@pytest.mark.parametrize("count", [1, 5, 2 * GIF_FRAMES + 3, 1_000])
def test_a_gif_keeps_a_bounded_number_of_frames_and_the_last(tmp_path: Path, count: int) -> None:
    writer = video_writer(tmp_path / "a.gif", fps=20)
    for frame in frames(count):
        writer.add(frame)
    writer.close()

    with Image.open(tmp_path / "a.gif") as picture:
        shown = picture.n_frames
        picture.seek(shown - 1)
        assert np.asarray(picture.convert("RGB")).mean() == (0 if count == 1 else pytest.approx(255, abs=3))
    assert shown == count if count <= 5 else GIF_FRAMES <= shown <= 2 * GIF_FRAMES


def test_a_wide_gif_is_reduced(tmp_path: Path) -> None:
    writer = video_writer(tmp_path / "a.gif", fps=20)
    writer.add(frames(1, width=960)[0])
    writer.close()

    with Image.open(tmp_path / "a.gif") as picture:
        assert picture.size == (GIF_WIDTH, 16)


def test_an_mp4_holds_every_frame(tmp_path: Path) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="needs the extra `video`")

    writer = video_writer(tmp_path / "new" / "a.mp4", fps=20)
    for frame in frames(12):
        writer.add(frame)
    writer.close()

    assert ffmpeg.count_frames_and_secs(tmp_path / "new" / "a.mp4")[0] == 12
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.mp4"]


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"neither \.mp4 nor \.gif"):
        video_writer(tmp_path / "a.avi", fps=20)
