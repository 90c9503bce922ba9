"""Reads the scalars of TensorBoard's event files while they grow, with the standard library alone.

A file is a sequence of records: length (8 bytes, little-endian), its checksum (4), the record, its checksum (4). A
record is an Event in protobuf's wire format, of which a handful of fields matter here. Checksums are not verified.
Source: tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto and framework/summary.proto.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

EVENT_FILES = "events.out.tfevents.*"
"""The names of event files."""

EVENT_STEP, EVENT_SUMMARY = 2, 5
SUMMARY_VALUE = 1
VALUE_TAG, VALUE_SIMPLE, VALUE_TENSOR = 1, 2, 8
TENSOR_DTYPE, TENSOR_CONTENT, TENSOR_FLOATS, TENSOR_DOUBLES = 1, 4, 5, 6
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
    """One event file, read from where the last read ended."""

    def __init__(self, path: Path):
        self.path = path
        self.offset = 0

    def read(self) -> Iterator[Scalar]:
        """The scalars appended since the last read.

        A record that is only half written yet is left for the next read; one that is damaged is passed over.
        """
        with self.path.open("rb") as file:
            file.seek(self.offset)
            while (record := next_record(file)) is not None:
                self.offset = file.tell()
                try:
                    yield from scalars(record)
                except (ValueError, IndexError, struct.error):
                    continue


def next_record(file: BinaryIO) -> bytes | None:
    """The next record, or None where no whole one follows."""
    header = file.read(HEADER)
    if len(header) < HEADER:
        return None
    (length,) = struct.unpack_from("<Q", header)
    if length + FOOTER > os.fstat(file.fileno()).st_size - file.tell():
        return None
    return file.read(length + FOOTER)[:-FOOTER]


def scalars(event: bytes) -> list[Scalar]:
    """The scalars of one event.

    Raises:
        ValueError, IndexError, struct.error: if it is no event.
    """
    step, summaries = 0, []
    for number, content in fields(event):
        if number == EVENT_STEP:
            step = content
        elif number == EVENT_SUMMARY:
            summaries.append(content)
    values = [dict(fields(value)) for summary in summaries for n, value in fields(summary) if n == SUMMARY_VALUE]
    found = [(value[VALUE_TAG].decode(), number_of(value)) for value in values if VALUE_TAG in value]
    return [Scalar(tag, step, number) for tag, number in found if number is not None]


def number_of(value: dict[int, Any]) -> float | None:
    """The number of one summary value, whether it is stored plainly or as a tensor; None for anything else."""
    if VALUE_SIMPLE in value:
        return float(struct.unpack("<f", value[VALUE_SIMPLE])[0])
    tensor = dict(fields(value.get(VALUE_TENSOR, b"")))
    stored = next((tensor[n] for n in (TENSOR_CONTENT, TENSOR_FLOATS, TENSOR_DOUBLES) if n in tensor), b"")
    form = FORMATS.get(tensor.get(TENSOR_DTYPE, 0))
    if form is None or len(stored) != struct.calcsize(form):
        return None
    return float(struct.unpack(form, stored)[0])


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Number and content of every field of a message: an int for a varint, else the raw bytes.

    Raises:
        ValueError, IndexError: if it is no message.
    """
    position = 0
    while position < len(message):
        key, position = varint(message, position)
        number, wire = key >> 3, key & 7
        if wire == 0:
            content, position = varint(message, position)
            yield number, content
            continue
        if wire == 2:
            size, position = varint(message, position)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        yield number, message[position : position + size]
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
