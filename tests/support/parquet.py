"""A reader of Parquet, written from its specification and not from the writer: PLAIN pages without compression.

https://github.com/apache/parquet-format and Thrift's compact protocol. Enough for one flat table with lists.
"""

from __future__ import annotations

import struct
from typing import Any

FORMATS = {2: ("q", 8), 4: ("f", 4)}


class Thrift:
    """Reads structs as dicts by field number."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def value(self, kind: int) -> Any:
        if kind in (4, 5, 6):
            number = self.varint()
            return number >> 1 ^ -(number & 1)
        if kind == 8:
            size = self.varint()
            self.at += size
            return self.data[self.at - size : self.at].decode()
        if kind == 9:
            head = self.data[self.at]
            self.at += 1
            size = head >> 4 if head >> 4 < 15 else self.varint()
            return [self.value(head & 15) for _ in range(size)]
        assert kind == 12, kind
        return self.struct()

    def struct(self) -> dict[int, Any]:
        found: dict[int, Any] = {}
        number = 0
        while head := self.data[self.at]:
            self.at += 1
            assert head >> 4, "only short field headers are expected"
            number += head >> 4
            found[number] = self.value(head & 15)
        self.at += 1
        return found


def levels(page: bytes, count: int) -> tuple[list[int], bytes]:
    """(levels of one bit, what follows them)."""
    (size,) = struct.unpack_from("<I", page)
    runs, found = Thrift(page[4 : 4 + size]), list[int]()
    while runs.at < size:
        head = runs.varint()
        assert head & 1 == 0, "only runs are expected"
        found += [runs.data[runs.at]] * (head >> 1)
        runs.at += 1
    assert len(found) == count
    return found, page[4 + size :]


def column(data: bytes, metadata: dict[int, Any]) -> tuple[list[int], list[int], list[Any]]:
    """(repetition levels, definition levels, values)."""
    header = Thrift(data, metadata[9])
    head = header.struct()
    page = data[header.at : header.at + head[2]]
    assert head[2] == head[3]
    assert header.at + head[2] == metadata[9] + metadata[7]
    count, path = head[5][1], metadata[3]
    assert count == metadata[5]
    repetition, page = levels(page, count) if len(path) > 1 else ([0] * count, page)
    definition, page = levels(page, count) if path != ["line"] else ([1] * count, page)
    values: list[Any] = []
    if metadata[1] == 6:
        while page:
            (size,) = struct.unpack_from("<I", page)
            values.append(page[4 : 4 + size].decode())
            page = page[4 + size :]
    else:
        code, width = FORMATS[metadata[1]]
        values = list(struct.unpack(f"<{len(page) // width}{code}", page))
    return repetition, definition, values


def read(data: bytes) -> list[tuple[int, str | None, list[float]]]:
    """The rows (line, id, vector)."""
    assert data[:4] == data[-4:] == b"PAR1"
    (size,) = struct.unpack("<I", data[-8:-4])
    footer = Thrift(data[-8 - size : -8]).struct()
    assert [element[4] for element in footer[2]] == ["schema", "line", "id", "vector", "list", "element"]
    rows: list[tuple[int, str | None, list[float]]] = []
    for group in footer[4]:
        (_, _, lines), (_, there, ids), (starts, _, numbers) = (column(data, c[3]) for c in group[1])
        remaining = iter(ids)
        vectors: list[list[float]] = []
        for start, number in zip(starts, numbers, strict=True):
            if start == 0:
                vectors.append([])
            vectors[-1].append(number)
        named = [next(remaining) if level else None for level in there]
        rows += zip(lines, named, vectors, strict=True)
        assert len(lines) == group[3]
    assert len(rows) == footer[3]
    return rows
