"""Writes vectors as Apache Parquet, in the simplest form that every reader knows: PLAIN values, no compression.

    line    INT64                 from 1
    id      BYTE_ARRAY (UTF8)     null without an id
    vector  LIST of FLOAT

float32 numbers of a vector do not compress, so a library would make the file no smaller. The formats are those of
https://github.com/apache/parquet-format (parquet.thrift, Encodings.md) and of Thrift's compact protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

MAGIC = b"PAR1"
ROW_GROUP_BYTES = 16 * 1024 * 1024
INT64, FLOAT, BYTE_ARRAY = 2, 4, 6
REQUIRED, OPTIONAL, REPEATED = 0, 1, 2
UTF8, LIST = 0, 3
PLAIN, RLE = 0, 3
DATA_PAGE, UNCOMPRESSED = 0, 0

# ── Thrift's compact protocol ────────────────────────────────────────────────────────────────────────────


class Value(NamedTuple):
    """An encoded value, with the type that its field or list names."""

    type: int
    data: bytes


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def i32(number: int) -> Value:
    return Value(5, varint(2 * number))  # zigzag; no number here is negative


def i64(number: int) -> Value:
    return Value(6, varint(2 * number))


def text(value: str) -> Value:
    return Value(8, varint(len(value.encode())) + value.encode())


def sequence(values: Sequence[Value]) -> Value:
    head = values[0].type if values else 12
    size = bytes([len(values) << 4 | head]) if len(values) < 15 else bytes([0xF0 | head]) + varint(len(values))
    return Value(9, size + b"".join(value.data for value in values))


def record(**fields: Value) -> Value:
    """A struct. A field is named `_` and its number, and fields are in the order of their numbers."""
    encoded, last = bytearray(), 0
    for name, value in fields.items():
        number = int(name[1:])
        encoded += bytes([(number - last) << 4 | value.type]) + value.data
        last = number
    return Value(12, bytes(encoded) + b"\0")


# ── the file ─────────────────────────────────────────────────────────────────────────────────────────────


class Column(NamedTuple):
    type: int
    path: tuple[str, ...]


LINE, ID, VECTOR = (
    Column(INT64, ("line",)),
    Column(BYTE_ARRAY, ("id",)),
    Column(FLOAT, ("vector", "list", "element")),
)
SCHEMA = sequence(
    [
        record(_4=text("schema"), _5=i32(3)),
        record(_1=i32(INT64), _3=i32(REQUIRED), _4=text("line")),
        record(_1=i32(BYTE_ARRAY), _3=i32(OPTIONAL), _4=text("id"), _6=i32(UTF8)),
        record(_3=i32(REQUIRED), _4=text("vector"), _5=i32(1), _6=i32(LIST)),
        record(_3=i32(REPEATED), _4=text("list"), _5=i32(1)),
        record(_1=i32(FLOAT), _3=i32(REQUIRED), _4=text("element")),
    ]
)


class ParquetFile:
    """A file at `path`. It is valid once the context has ended."""

    def __init__(self, path: Path, *, dimensions: int) -> None:
        self._file = path.open("wb")
        self._file.write(MAGIC)
        self._dimensions = dimensions
        self._rows_per_group = max(1, ROW_GROUP_BYTES // (4 * dimensions))
        self._rows: list[tuple[int, str | None, bytes]] = []
        self._groups: list[Value] = []
        self._total = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            if kind is None:
                self._end()

    def add(self, line: int, line_id: str | None, vector: bytes) -> None:
        """Add a row. `vector`: little-endian float32."""
        self._rows.append((line, line_id, vector))
        if len(self._rows) == self._rows_per_group:
            self._write_group()

    def _end(self) -> None:
        if self._rows:
            self._write_group()
        footer = record(
            _1=i32(1), _2=SCHEMA, _3=i64(self._total), _4=sequence(self._groups), _6=text("recado")
        ).data
        self._file.write(footer + struct.pack("<I", len(footer)) + MAGIC)

    def _write_group(self) -> None:
        rows, self._rows = self._rows, []
        ids = [line_id for _, line_id, _ in rows]
        start = self._file.tell()
        columns = [
            self._write(LINE, len(rows), struct.pack(f"<{len(rows)}q", *(line for line, _, _ in rows))),
            self._write(ID, len(rows), _levels(_runs(ids)) + b"".join(map(_byte_array, filter(None, ids)))),
            self._write(
                VECTOR, len(rows) * self._dimensions, self._lists(len(rows)) + b"".join(v for _, _, v in rows)
            ),
        ]
        size = self._file.tell() - start
        self._groups.append(record(_1=sequence(columns), _2=i64(size), _3=i64(len(rows))))
        self._total += len(rows)

    def _lists(self, rows: int) -> bytes:
        """Repetition levels (0 begins a vector) and definition levels (1: there is a number)."""
        repetition = [(1, 0), (self._dimensions - 1, 1)] * rows
        return _levels(repetition) + _levels([(rows * self._dimensions, 1)])

    def _write(self, column: Column, count: int, page: bytes) -> Value:
        """Write a column of one page and return its ColumnChunk."""
        offset = self._file.tell()
        data_page = record(_1=i32(count), _2=i32(PLAIN), _3=i32(RLE), _4=i32(RLE))
        header = record(_1=i32(DATA_PAGE), _2=i32(len(page)), _3=i32(len(page)), _5=data_page)
        self._file.write(header.data + page)
        size = i64(self._file.tell() - offset)
        metadata = record(
            _1=i32(column.type),
            _2=sequence([i32(PLAIN), i32(RLE)]),
            _3=sequence([text(name) for name in column.path]),
            _4=i32(UNCOMPRESSED),
            _5=i64(count),
            _6=size,
            _7=size,
            _9=i64(offset),
        )
        return record(_2=i64(offset), _3=metadata)


def _runs(ids: Sequence[str | None]) -> list[tuple[int, int]]:
    """(how many, 1 for an id and 0 for none)."""
    return [(len(list(run)), int(there)) for there, run in groupby(ids, key=lambda line_id: line_id is not None)]


def _levels(runs: Iterable[tuple[int, int]]) -> bytes:
    """Levels of one bit as runs (RLE), with their length in bytes."""
    encoded = b"".join(varint(count << 1) + bytes([level]) for count, level in runs if count)
    return struct.pack("<I", len(encoded)) + encoded


def _byte_array(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack("<I", len(encoded)) + encoded
