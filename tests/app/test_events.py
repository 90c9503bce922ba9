import struct
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event
from torch.utils.tensorboard import SummaryWriter

from app.events import EVENT_FILES, EventFile, Scalar, scalars


def written(folder: Path) -> Path:
    """The event file of a folder."""
    return next(folder.glob(EVENT_FILES))


@pytest.mark.parametrize("form", [{}, {"new_style": True}, {"new_style": True, "double_precision": True}])
def test_scalars_of_every_form_are_read(tmp_path: Path, form: dict[str, bool]) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("train/loss", 0.5, **form)
        writer.add_scalar("train/loss", -2.25, 6_012_928_000, **form)

    assert list(EventFile(written(tmp_path)).read()) == [
        Scalar("train/loss", 0, 0.5),
        Scalar("train/loss", 6_012_928_000, -2.25),
    ]


def test_a_scalar_kept_as_raw_content_is_read() -> None:
    event = Event(step=7)
    tensor = event.summary.value.add(tag="eval/return_mean").tensor
    tensor.dtype, tensor.tensor_content = 1, struct.pack("<f", 1.5)

    assert scalars(event.SerializeToString()) == [Scalar("eval/return_mean", 7, 1.5)]


def test_everything_but_scalars_is_passed_over(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("weights", torch.arange(10.0), 1)
        writer.add_text("note", "some words", 1)
        writer.add_image("board", torch.zeros(3, 8, 8), 1)
        writer.add_pr_curve("curve", torch.tensor([0, 1]), torch.tensor([0.2, 0.8]), 1)
        writer.add_scalar("a", 1.0, 2)

    assert list(EventFile(written(tmp_path)).read()) == [Scalar("a", 2, 1.0)]


def test_a_growing_file_gives_each_scalar_once(tmp_path: Path) -> None:
    writer = SummaryWriter(tmp_path)
    writer.add_scalar("a", 1.0, 1)
    writer.flush()
    file = EventFile(written(tmp_path))

    first, nothing = list(file.read()), list(file.read())
    writer.add_scalar("a", 2.0, 2)
    writer.close()

    assert (first, nothing, list(file.read())) == ([Scalar("a", 1, 1.0)], [], [Scalar("a", 2, 2.0)])


def test_a_record_half_written_is_left_for_the_next_read(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_scalar("a", float(step), step)
    whole = written(tmp_path).read_bytes()
    growing = tmp_path / "growing"

    for cut in range(len(whole)):
        growing.write_bytes(whole[:cut])
        file = EventFile(growing)
        before = list(file.read())
        growing.write_bytes(whole)
        assert [point.value for point in before + list(file.read())] == [0.0, 1.0, 2.0]


def test_a_damaged_record_costs_only_itself(tmp_path: Path) -> None:
    damaged = b"\x2a\x7f\x0a\x05\x0a\x09"
    record = struct.pack("<QI", len(damaged), 0) + damaged + bytes(4)
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("a", 1.0, 1)
    path = written(tmp_path)
    path.write_bytes(record + path.read_bytes())

    assert list(EventFile(path).read()) == [Scalar("a", 1, 1.0)]


@given(st.binary(max_size=60))
def test_no_bytes_make_it_fail_in_another_way_than_it_says(content: bytes) -> None:
    with suppress(ValueError, IndexError, struct.error):
        assert all(isinstance(point.step, int) and isinstance(point.value, float) for point in scalars(content))
