import math
from pathlib import Path

import pytest
from torch.utils.tensorboard import SummaryWriter

from app.monitor.curves import MAX_POINTS, Curve, Curves, sparkline
from app.monitor.event_files import EVENT_FILES


def curve(*points: tuple[int, float]) -> Curve:
    filled = Curve()
    for step, value in points:
        filled.add(step, value)
    return filled


@pytest.mark.parametrize(
    ("points", "line"),
    [
        ([], ""),
        ([(0, math.nan)], ""),
        ([(5, 3.0)], "▁▁▁▁"),
        ([(0, 0.0), (1, 1.0), (2, 2.0), (3, 7.0)], "▁▂▃█"),
        ([(0, 0.0), (1, math.inf), (2, 1.0), (3, math.nan)], "▁▁██"),
        ([(0, 0.0), (1000, 1.0)], "▁▁▁█"),
        ([(0, 0.0), (1, 2.0), (100, 2.0), (300, 4.0)], "▁▃▃█"),
    ],
)
def test_a_sparkline_shows_means_over_equal_stretches_of_steps(points: list[tuple[int, float]], line: str) -> None:
    assert sparkline(points, 4) == line


def test_a_resumed_run_rewrites_what_it_does_again() -> None:
    resumed = curve((10, 1.0), (20, 2.0), (30, 3.0), (20, 5.0))

    assert resumed.points == [(10, 1.0), (20, 5.0)]


def test_a_long_curve_keeps_its_ends_and_its_size() -> None:
    points = curve(*((step, float(step)) for step in range(10 * MAX_POINTS))).points

    assert len(points) <= MAX_POINTS
    assert (points[0][0], points[-1][0]) == (0, 10 * MAX_POINTS - 1)


def test_curves_grow_with_their_run_over_all_its_files(tmp_path: Path) -> None:
    curves = Curves(tmp_path)
    for file, step in enumerate((8, 16)):
        with SummaryWriter(tmp_path, filename_suffix=f".{file}") as writer:
            writer.add_scalar("eval/return_mean", float(step), step)
            writer.add_scalar("hp_metric", 0.0, step)
        curves.refresh()

    assert curves.env_steps == 16
    assert curves.groups()["eval"]["return_mean"].points == [(8, 8.0), (16, 16.0)]
    assert list(curves.groups()) == ["eval", "other"]


def test_a_run_that_vanishes_keeps_its_curves(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("a/b", 1.0, 1)
    curves = Curves(tmp_path)
    curves.refresh()

    next(tmp_path.glob(EVENT_FILES)).unlink()
    curves.refresh()

    assert curves.written_at is None
    assert curves.by_tag["a/b"].last == (1, 1.0)
