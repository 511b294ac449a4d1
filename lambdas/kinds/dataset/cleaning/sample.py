"""A sample of the records of a whole file, taken while it is read once."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal

HEAD_BYTES = 2 * 1024 * 1024
PIECE_BYTES = 192 * 1024
MAX_PIECES = 48


class Sampler:
    """Keeps the beginning, and pieces at equal distances from then on. `block`s are of whole records."""

    def __init__(self) -> None:
        self._head, self._pieces = b"", [b""]
        self._every = self._seen = 1
        self._pieces.clear()

    def watch(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        for block in blocks:
            self._keep(block)
            yield block

    def _keep(self, block: bytes) -> None:
        if not self._head:
            self._head = _whole(block, HEAD_BYTES)
            block = block[len(self._head) :]
        if self._seen % self._every == 0 and block:
            self._pieces.append(_whole(block, PIECE_BYTES))
        self._seen += 1
        if len(self._pieces) > MAX_PIECES:
            self._pieces = self._pieces[1::2]
            self._every *= 2

    def columns(self, count: int, *, delimiter: str, quoted: bool) -> list[Counter[str]]:
        """For each column, how often each value is in the sample. Empty ones are not counted."""
        text = (self._head + b"".join(self._pieces)).decode()
        quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting)
        found = zip(*(record[:count] for record in reader if len(record) >= count), strict=True)
        counted = [Counter(values) for values in found] or [Counter[str]() for _ in range(count)]
        for counter in counted:
            counter.pop("", None)
        return counted


def _whole(block: bytes, size: int) -> bytes:
    """The first records of the block: about so many bytes.

    A cut in a quoted field would be read as the end of the record; a line feed after an even number of quotes is
    none.
    """
    if len(block) <= size:
        return block
    end = size
    while (end := block.rfind(b"\n", 0, end)) > 0:
        if block.count(b'"', 0, end) % 2 == 0:
            return block[: end + 1]
    return b""
