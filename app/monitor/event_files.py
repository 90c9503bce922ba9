"""Read the scalars of growing TensorBoard event files, with TensorBoard's reader."""

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator
from tensorboard.compat import tf

EVENT_FILES = "events.out.tfevents.*"
"""Name pattern of event files."""


class Scalar(NamedTuple):
    """Point of a curve."""

    tag: str
    step: int
    value: float


class EventFile:
    """Event file that is read incrementally.

    Attributes:
        written_at: newest time in the data read so far, in seconds since the epoch; None before there is one.
    """

    def __init__(self, path: Path):
        self.path = path
        self.written_at: float | None = None
        self._events: EventAccumulator | None = None
        self._taken: Counter[str] = Counter()

    def read(self) -> list[Scalar]:
        """Read the scalars appended since the last read, ordered by tag.

        An incomplete record is left for the next read; reading ends at a damaged one.

        Raises: OSError if the file cannot be read.
        """
        try:
            if self._events is None:
                self._events = EventAccumulator(str(self.path), {SCALARS: 0}, purge_orphaned_data=False)  # 0: keep all
            events = self._events.Reload()
        except tf.errors.OpError as error:
            raise OSError(f"{self.path} cannot be read: {error}") from error
        found = []
        for tag in events.Tags()[SCALARS]:
            new = events.Scalars(tag)[self._taken[tag] :]
            self._taken[tag] += len(new)
            found += [Scalar(tag, point.step, point.value) for point in new]
            self._read_until([point.wall_time for point in new])
        if self.written_at is None and events.file_version is not None:
            self._read_until([events.FirstEventTimestamp()])
        return found

    def _read_until(self, times: list[float]) -> None:
        self.written_at = max([*times, *([] if self.written_at is None else [self.written_at])], default=None)


def newest_event_time(path: Path) -> float | None:
    """Return the newest time inside an event file; else the creation time in its name; None without either."""
    named, file = re.match(r"events\.out\.tfevents\.(\d+)\.", path.name), EventFile(path)
    try:
        file.read()
    except OSError:
        return None
    return file.written_at if file.written_at is not None or named is None else float(named[1])
