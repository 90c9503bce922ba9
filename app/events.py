"""Reads the scalars of TensorBoard's event files while they grow, with the standard library alone.

A file is a sequence of records: length (8 bytes, little-endian), its checksum (4), the record, its checksum (4). A
record is an Event in protobuf's wire format, of which a handful of fields matter here. Checksums are not verified.
Source: tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto and framework/summary.proto.
"""

import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

EVENT_FILES = "events.out.tfevents.*"
"""The names of event files."""

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types. A field's key is its number, shifted by three bits, and its wire type."""

EVENT_TIME, EVENT_STEP, EVENT_SUMMARY = 1 << 3 | FIXED64, 2 << 3 | VARINT, 5 << 3 | BYTES
SUMMARY_VALUE = 1 << 3 | BYTES
VALUE_TAG, VALUE_SIMPLE, VALUE_TENSOR = 1 << 3 | BYTES, 2 << 3 | FIXED32, 8 << 3 | BYTES
TENSOR_DTYPE = 1 << 3 | VARINT
TENSOR_CONTENTS = (4 << 3 | BYTES, 5 << 3 | BYTES, 6 << 3 | BYTES)
"""Where a tensor keeps its numbers: as raw content, as floats or as doubles."""

FORMATS = {1: "<f", 2: "<d"}
"""How a tensor's only number is stored, by its dtype."""

HEADER, FOOTER = 12, 4
"""Bytes before and after a record."""


class Scalar(NamedTuple):
    """One point of a curve."""

    tag: str
    step: int
    value: float


class EventFile:
    """One event file, read from where the last read ended.

    Attributes:
        written_at: the newest time inside what was read, in seconds since the epoch; None before there is one.
    """

    def __init__(self, path: Path):
        self.path = path
        self.offset = 0
        self.written_at: float | None = None

    def read(self) -> Iterator[Scalar]:
        """The scalars appended since the last read.

        A record that is only half written yet is left for the next read; one that is damaged is passed over.
        """
        with self.path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(self.offset)
            while (record := next_record(file, size - self.offset)) is not None:
                self.offset += HEADER + len(record) + FOOTER
                self.written_at = later(self.written_at, event_time(record))
                try:
                    yield from scalars(record)
                except (ValueError, IndexError, struct.error):
                    continue


def next_record(file: BinaryIO, available: int) -> bytes | None:
    """The next record, or None if the `available` bytes hold no whole one."""
    if available < HEADER:
        return None
    (length,) = struct.unpack_from("<Q", file.read(HEADER))
    if available < HEADER + length + FOOTER:
        return None
    return file.read(length + FOOTER)[:-FOOTER]


def event_time(event: bytes) -> float | None:
    """The time at which an event was written, which is its first field; None where it is not."""
    return struct.unpack_from("<d", event, 1)[0] if event[:1] == bytes([EVENT_TIME]) and len(event) >= 9 else None


def later(one: float | None, other: float | None) -> float | None:
    """The later of two times, either of which may be missing."""
    return max((time for time in (one, other) if time is not None), default=None)


def newest_event_time(path: Path) -> float | None:
    """The newest time inside an event file; else the time in its name, at which it was made; None without either."""
    named = re.match(r"events\.out\.tfevents\.(\d+)\.", path.name)
    newest, offset = None, 0
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            while (record := next_record(file, size - offset)) is not None:
                offset += HEADER + len(record) + FOOTER
                newest = later(newest, event_time(record))
    except OSError:
        return None
    return newest if newest is not None or named is None else float(named[1])


def scalars(event: bytes) -> list[Scalar]:
    """The scalars of one event.

    Raises:
        ValueError, IndexError, struct.error: if it is no event.
    """
    step, summaries = 0, []
    for key, content in fields(event):
        if key == EVENT_STEP:
            step = content
        elif key == EVENT_SUMMARY:
            summaries.append(content)
    values = [dict(fields(value)) for summary in summaries for key, value in fields(summary) if key == SUMMARY_VALUE]
    found = [(value[VALUE_TAG].decode(), number_of(value)) for value in values if VALUE_TAG in value]
    return [Scalar(tag, step, number) for tag, number in found if number is not None]


def number_of(value: dict[int, Any]) -> float | None:
    """The number of one summary value, whether it is stored plainly or as a tensor; None for anything else."""
    if VALUE_SIMPLE in value:
        return float(struct.unpack("<f", value[VALUE_SIMPLE])[0])
    tensor = dict(fields(value.get(VALUE_TENSOR, b"")))
    stored = next((tensor[key] for key in TENSOR_CONTENTS if key in tensor), b"")
    form = FORMATS.get(tensor.get(TENSOR_DTYPE, 0))
    if form is None or len(stored) != struct.calcsize(form):
        return None
    return float(struct.unpack(form, stored)[0])


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Key and content of every field of a message: an int for a varint, else the raw bytes.

    Raises:
        ValueError, IndexError: if it is no message.
    """
    position = 0
    while position < len(message):
        key, position = varint(message, position)
        wire = key & 7
        if wire == VARINT:
            content, position = varint(message, position)
            yield key, content
            continue
        if wire == BYTES:
            size, position = varint(message, position)
        elif wire in (FIXED32, FIXED64):
            size = 4 if wire == FIXED32 else 8
        else:
            raise ValueError(f"there is no wire type {wire}")
        yield key, message[position : position + size]
        position += size


def varint(message: bytes, position: int) -> tuple[int, int]:
    """An integer in groups of seven bits, the lowest first, and the position after it.

    Raises:
        IndexError: if the message ends within it.
    """
    number, shift = 0, 0
    while (byte := message[position]) & 0x80:
        number |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
    return number | byte << shift, position + 1
