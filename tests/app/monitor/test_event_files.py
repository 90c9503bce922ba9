"""Event files: what is read of them while they grow."""

from pathlib import Path

import pytest
import torch
from torch.utils.tensorboard import SummaryWriter

from app.monitor.event_files import EVENT_FILES, EventFile, Scalar, newest_event_time


def written(folder: Path) -> Path:
    """The event file of a folder."""
    return next(folder.glob(EVENT_FILES))


def test_everything_but_scalars_is_passed_over(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("weights", torch.arange(10.0), 1)
        writer.add_text("note", "some words", 1)
        writer.add_image("board", torch.zeros(3, 8, 8), 1)
        writer.add_scalar("a", -2.25, 6_012_928_000)

    assert EventFile(written(tmp_path)).read() == [Scalar("a", 6_012_928_000, -2.25)]


def test_a_growing_file_gives_each_scalar_once(tmp_path: Path) -> None:
    writer = SummaryWriter(tmp_path)
    writer.add_scalar("a", 1.0, 1)
    writer.flush()
    file = EventFile(written(tmp_path))

    first, nothing = file.read(), file.read()
    writer.add_scalar("a", 2.0, 2)
    writer.close()

    assert (first, nothing, file.read()) == ([Scalar("a", 1, 1.0)], [], [Scalar("a", 2, 2.0)])


def test_every_scalar_of_a_long_run_is_read(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        for step in range(11_000):
            writer.add_scalar("a", float(step), step)

    assert [point.step for point in EventFile(written(tmp_path)).read()] == list(range(11_000))


def test_a_record_half_written_is_left_for_the_next_read(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_scalar("a", float(step), step)
    whole = written(tmp_path).read_bytes()
    growing = tmp_path / "tfevents.growing"

    for cut in range(len(whole)):
        growing.write_bytes(whole[:cut])
        file = EventFile(growing)
        before = file.read()
        growing.write_bytes(whole)
        assert [point.value for point in before + file.read()] == [0.0, 1.0, 2.0]


def test_reading_ends_at_a_damaged_record(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_scalar("a", float(step), step)
    content = bytearray(written(tmp_path).read_bytes())
    content[-6] ^= 0xFF
    written(tmp_path).write_bytes(content)

    assert [point.value for point in EventFile(written(tmp_path)).read()] == [0.0, 1.0]


def test_a_file_that_is_gone_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="cannot be read"):
        EventFile(tmp_path / "events.out.tfevents.1.host").read()


def test_the_newest_time_is_that_of_the_last_scalar_else_of_the_file_else_of_its_name(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path / "run") as writer:
        writer.add_scalar("a", 1.0, 1, walltime=3e9)
    empty = tmp_path / "events.out.tfevents.1234.host"
    empty.touch()

    assert newest_event_time(written(tmp_path / "run")) == 3e9
    assert newest_event_time(empty) == 1234 and newest_event_time(tmp_path / "events.out.tfevents.5.host") is None
