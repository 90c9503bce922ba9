"""Curves of a running run, and sparklines of them."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from app.monitor.event_files import EVENT_FILES, EventFile

LEVELS = "▁▂▃▄▅▆▇█"
MAX_POINTS = 4096


class Curve:
    """Points of one tag, in order of their steps; every second one is dropped if there are too many."""

    def __init__(self) -> None:
        self.points: list[tuple[int, float]] = []

    def add(self, step: int, value: float) -> None:
        """Add a point; it replaces later ones, which a run resumed from an earlier step writes again."""
        while self.points and self.points[-1][0] >= step:
            self.points.pop()
        self.points.append((step, value))
        if len(self.points) > MAX_POINTS:
            del self.points[1:-1:2]

    @property
    def last(self) -> tuple[int, float]:
        """Return step and value of the newest point."""
        return self.points[-1]


class Curves:
    """All curves of a run folder, by tag."""

    def __init__(self, run: Path):
        self.run = run
        self.by_tag: dict[str, Curve] = {}
        self._files: dict[Path, EventFile] = {}

    def refresh(self) -> None:
        """Read the data written since the last call; an unreadable file is left for the next call."""
        for path in sorted(self.run.glob(EVENT_FILES)):
            try:
                for tag, step, value in self._files.setdefault(path, EventFile(path)).read():
                    self.by_tag.setdefault(tag, Curve()).add(step, value)
            except OSError:
                continue

    @property
    def env_steps(self) -> int:
        """Return the env steps of the newest point."""
        return max((curve.last[0] for curve in self.by_tag.values()), default=0)

    @property
    def written_at(self) -> float | None:
        """Return the newest time in the data, in seconds since the epoch; None if the files are gone."""
        times = [file.written_at for path, file in self._files.items() if path.is_file()]
        return max((time for time in times if time is not None), default=None)

    def groups(self) -> dict[str, dict[str, Curve]]:
        """Return the curves by group, then by name: `train/policy_loss` is `policy_loss` of `train`."""
        grouped: dict[str, dict[str, Curve]] = {}
        for tag, curve in self.by_tag.items():
            group, slash, name = tag.partition("/")
            grouped.setdefault(group if slash else "other", {})[name if slash else tag] = curve
        return grouped


def sparkline(points: Sequence[tuple[int, float]], width: int) -> str:
    """Return a sparkline of `width` characters: means over equal intervals of steps; empty intervals repeat values."""
    finite = [(step, value) for step, value in points if math.isfinite(value)]
    if not finite:
        return ""
    first, stretch = finite[0][0], (finite[-1][0] - finite[0][0] + 1) / width
    buckets: list[list[float]] = [[] for _ in range(width)]
    for step, value in finite:
        buckets[int((step - first) / stretch)].append(value)
    heights: list[float] = []
    for bucket in buckets:
        heights.append(fmean(bucket) if bucket else heights[-1])
    low, span = min(heights), max(heights) - min(heights)
    return "".join(LEVELS[round((height - low) / span * (len(LEVELS) - 1)) if span else 0] for height in heights)
