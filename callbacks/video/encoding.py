"""Encode frames as MP4 (imageio with imageio-ffmpeg) or as GIF (Pillow)."""

import io
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from callbacks.run_control.atomic_write import atomic_write
from datamodules.core.errors import ConfigurationError

Array = np.ndarray[Any, Any]

GIF_FRAMES, GIF_WIDTH = 100, 480
"""Fewest frames of the GIF of a longer episode (fewer than twice as many are kept), and its greatest width."""

LAST_MS = 1_500
"""Milliseconds that a GIF shows its last frame."""


class VideoWriter(Protocol):
    """Writer of one video: frames uint8 `[H, W, 3]` of equal, even sides, then `close`."""

    def add(self, frame: Array) -> None:
        """Add a frame."""
        ...

    def close(self) -> None:
        """Write the file."""
        ...


def video_writer(path: Path, fps: int) -> VideoWriter:
    """Return the writer of a `.mp4` or `.gif`.

    Raises:
        ConfigurationError: for another ending, and for an MP4 without the packages that it needs.
    """
    if path.suffix == ".gif":
        return GIFWriter(path, fps)
    if path.suffix != ".mp4":
        raise ConfigurationError(f"The video {path} ends with neither .mp4 nor .gif: choose one of them.")
    return MP4Writer(path, fps)


def require_mp4() -> None:
    """Check that MP4 can be written.

    Raises:
        ConfigurationError: without imageio and imageio-ffmpeg.
    """
    try:
        import imageio_ffmpeg  # noqa: F401
        from imageio import v2  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(
            f"An MP4 needs imageio and imageio-ffmpeg ({error}): pip install -e '.[video]' in the project's folder, or"
            " choose a name that ends with .gif."
        ) from error


class MP4Writer:
    """Writer of H.264, which browsers and notebooks play; frames are encoded as they come.

    Raises: ConfigurationError without imageio and imageio-ffmpeg.
    """

    def __init__(self, path: Path, fps: int):
        require_mp4()
        from imageio import v2

        self.path, self.unfinished = path, path.with_name(f".{path.stem}.unfinished.mp4")
        path.parent.mkdir(parents=True, exist_ok=True)
        options: dict[str, Any] = {"fps": fps, "macro_block_size": 2, "quality": 7}
        self.writer = v2.get_writer(self.unfinished, format="FFMPEG", **options)

    def add(self, frame: Array) -> None:
        """Encode a frame."""
        self.writer.append_data(frame)

    def close(self) -> None:
        """Finish the file, which then gets its name."""
        self.writer.close()
        self.unfinished.replace(self.path)


class GIFWriter:
    """Writer of a looping GIF; of a long episode it keeps every second, fourth, ... frame, and the last."""

    def __init__(self, path: Path, fps: int):
        self.path, self.fps, self.stride, self.count = path, fps, 1, 0
        self.frames: list[Image.Image] = []
        self.last: Image.Image | None = None

    def add(self, frame: Array) -> None:
        """Keep a frame, reduced to `GIF_WIDTH`."""
        picture = Image.fromarray(frame)
        if picture.width > GIF_WIDTH:
            picture = picture.resize((GIF_WIDTH, round(picture.height * GIF_WIDTH / picture.width)))
        self.last = picture
        if self.count % self.stride == 0:
            self.frames.append(picture)
        self.count += 1
        if len(self.frames) == 2 * GIF_FRAMES:
            self.frames, self.stride = self.frames[::2], 2 * self.stride

    def close(self) -> None:
        """Write the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.path) as file:
            file.write(self.content())

    def content(self) -> bytes:
        """Return the content of the file."""
        frames = self.frames if self.last is None or self.frames[-1] is self.last else [*self.frames, self.last]
        some = [np.asarray(frame) for frame in (*frames[:: -(-len(frames) // 4)], frames[-1])]
        palette = Image.fromarray(np.concatenate(some)).quantize(255, Image.Quantize.MAXCOVERAGE)
        first, *others = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
        durations = [round(1000 * self.stride / self.fps)] * len(others) + [LAST_MS]
        file = io.BytesIO()
        first.save(file, "GIF", save_all=True, append_images=others, duration=durations, loop=0)
        return file.getvalue()
