"""Cuts a CSV file into records, and counts them independently of the engine that reads them.

What comes out are records with the right number of fields, valid UTF-8, each ended by a line feed. Others are
rejected with their number, their line and a reason, and a record of empty fields stands in their place:

- A record that is not quoted as in RFC 4180, or has the wrong number of fields and several lines: only its first
  line is rejected, and reading goes on at the next line. So a quote that is not closed costs one line.
- A line of more than MAX_RECORD_BYTES.

CR, LF and CRLF outside quotes end a record. Blank lines are no records, unless there is one column.

Most of a file is right, and its blocks are checked by numpy. A block with a fault is read record by record.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kinds.dataset.errors import UnbalancedQuotes

MAX_RECORD_BYTES = 1_000_000
BLOCK_BYTES = 8 * 1024 * 1024
MAX_BAD_QUOTES = 10_000
"""With more, the file is not quoted as in RFC 4180 at all."""

CLOSER_LOOK = 64
"""Lines that are read one by one before the rest of a block is checked quickly again."""

BAD_QUOTES, TOO_LONG, INVALID_ENCODING = "bad_quotes", "record_too_long", "invalid_encoding"
TOO_FEW, TOO_MANY = "too_few_fields", "too_many_fields"

_QUOTE, _CR, _LF = 34, 13, 10
_LINE_END = re.compile(rb"\r\n|\n|\r")
_LINE_ENDS = {b"\r\n": "crlf", b"\n": "lf", b"\r": "cr"}
Positions = NDArray[np.intp]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Reject:
    """`record` counts from 1 after the header, `line` from 1 in the file. `data`: the bytes, cut if too long."""

    record: int
    line: int
    reason: str
    data: bytes


@dataclass(slots=True)
class Count:
    """What was read so far. `rejected`: the numbers of the rejected records, in order.

    `accepted`: records that were not rejected. `line_ends`: the kinds of line ends outside quotes.
    """

    accepted: int = 0
    lines: int = 0
    blank_lines: int = 0
    rejected: array[int] = field(default_factory=lambda: array("q"))
    reasons: Counter[str] = field(default_factory=Counter)
    line_ends: set[str] = field(default_factory=set)

    @property
    def records(self) -> int:
        return self.accepted + len(self.rejected)


class NotUtf8(Exception):
    """Bytes that are not UTF-8: the whole file must be looked at to tell its encoding."""


class Splitter:
    """Reads blocks of a file in UTF-8, after the header.

    `lines`: how many lines were before the first block. With `reject_invalid`, records with bytes that are not
    UTF-8 are rejected; else NotUtf8 is raised.
    """

    def __init__(
        self,
        *,
        delimiter: str,
        quoted: bool,
        columns: int,
        on_reject: Callable[[Reject], None],
        lines: int = 1,
        reject_invalid: bool = True,
    ) -> None:
        self.count = Count(lines=lines)
        self._delimiter, self._quoted, self._columns = ord(delimiter), quoted, columns
        self._on_reject, self._reject_invalid = on_reject, reject_invalid
        self._field, self._record = _patterns(delimiter, quoted)
        self._placeholder = bytes([self._delimiter]) * (columns - 1) + b"\n"
        self._separator = np.zeros(256, dtype=bool)
        self._separator[[self._delimiter, _LF, _CR, _QUOTE]] = True

    def split(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """The records that are right, and a placeholder for each other one, in blocks of whole records.

        Raises UnbalancedQuotes, and NotUtf8.
        """
        rest, skipping = b"", False
        for block in _sized(blocks):
            if skipping:  # the rest of a line that is too long
                _, end, block = _partition_line(block)
                if not end:
                    continue
                skipping, self.count.lines = False, self.count.lines + 1
            accepted, rest, skipping = self._take(rest + block, last=False)
            if accepted:
                yield accepted
        if rest:
            accepted, _, _ = self._take(rest, last=True)
            yield accepted

    def _take(self, block: bytes, *, last: bool) -> tuple[bytes, bytes, bool]:
        """(accepted records, bytes that belong to the next block, whether a line goes on that is too long)."""
        held, accepted, limit = b"", [], CLOSER_LOOK
        if last:
            block += b"" if block.endswith((b"\n", b"\r")) else b"\n"
        elif block.endswith((b"\r", b'"')):  # what follows decides what it means
            kept = block.rstrip(b'\r"')
            block, held = kept, block[len(kept) :]
        while True:
            quick, rest, in_doubt = self._check_quickly(block, last=last)
            accepted.append(quick)
            if not in_doubt:
                return b"".join(accepted), rest + held, False
            slow, block, skipping = self._one_by_one(rest, last=last, limit=limit)
            accepted.append(slow)
            if skipping:
                return b"".join(accepted), b"", True
            if block == rest:
                return b"".join(accepted), rest + held, False
            limit *= 4  # if there are many faults, the quick check is in vain

    # ── by numpy ─────────────────────────────────────────────────────────────────────────────────────────────

    def _check_quickly(self, block: bytes, *, last: bool) -> tuple[bytes, bytes, bool]:
        """(accepted records, the rest of the block, whether the rest begins with a record that is in doubt)."""
        block, beyond = self._cut_at_wrong_quote(block)
        text = self._normalised(block)
        data = np.frombuffer(text, dtype=np.uint8)
        quotes, feeds = self._quotes(data), np.flatnonzero(data == _LF)
        ends = feeds[(np.searchsorted(quotes, feeds) & 1) == 0] if len(quotes) else feeds
        starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
        fields = self._fields(data, ends, quotes)
        sure = self._count_sure(text, data, starts, ends, fields, multiline=len(feeds) > len(ends))
        end = int(ends[sure - 1]) + 1 if sure else 0
        accepted = self._sort(text[:end], data, starts[:sure], ends[:sure], fields[:sure], feeds)
        rest = text[end:] + beyond
        too_long = len(rest) > (0 if last else MAX_RECORD_BYTES)
        return accepted, rest, bool(beyond) or sure < len(ends) or too_long

    def _cut_at_wrong_quote(self, block: bytes) -> tuple[bytes, bytes]:
        """The records before the first quote that is not where RFC 4180 allows one, and the rest."""
        data = np.frombuffer(block, dtype=np.uint8)
        quotes = self._quotes(data)
        opening, closing = quotes[::2], quotes[1::2]
        before, after = opening[opening > 0], closing[closing < len(data) - 1]
        wrong = [
            *before[~self._separator[data[before - 1]]][:1].tolist(),
            *after[~self._separator[data[after + 1]]][:1].tolist(),
        ]
        if not wrong:
            return block, b""
        ends = np.flatnonzero((data[: min(wrong)] == _LF) | (data[: min(wrong)] == _CR))
        ends = ends[(np.searchsorted(quotes, ends) & 1) == 0]
        cut = int(ends[-1]) + 1 if len(ends) else 0
        return block[:cut], block[cut:]

    def _normalised(self, block: bytes) -> bytes:
        """The block with LF at the end of each record. Line ends in quotes stay."""
        if b"\r" not in block:
            self.count.line_ends |= {"lf"} if b"\n" in block else set()
            return block
        data = np.frombuffer(block, dtype=np.uint8)
        quotes = self._quotes(data)
        returns, feeds = np.flatnonzero(data == _CR), np.flatnonzero(data == _LF)
        returns = returns[(np.searchsorted(quotes, returns) & 1) == 0]
        feeds = feeds[(np.searchsorted(quotes, feeds) & 1) == 0]
        following = np.append(data, np.uint8(0))[returns + 1] == _LF
        found = {"crlf": following.any(), "cr": not following.all(), "lf": len(feeds) > following.sum()}
        self.count.line_ends |= {name for name, is_there in found.items() if is_there}
        changed, keep = data.copy(), np.ones(len(data), dtype=bool)
        changed[returns[~following]] = _LF
        keep[returns[following]] = False
        return changed[keep].tobytes()

    def _count_sure(
        self,
        text: bytes,
        data: NDArray[np.uint8],
        starts: Positions,
        ends: Positions,
        fields: Positions,
        *,
        multiline: bool,
    ) -> int:
        """How many records from the first on need no closer look."""
        doubts = np.flatnonzero(ends - starts > MAX_RECORD_BYTES)[:1].tolist()
        invalid = _first_invalid(text[: ends[-1] + 1]) if len(ends) else None
        if invalid is not None:
            doubts.append(int(np.searchsorted(ends, invalid)))
        if multiline:  # a wrong record of several lines: perhaps a quote that is not closed has swallowed some
            wrong = np.flatnonzero(self._is_wrong(data, starts, ends, fields))
            doubts += [int(n) for n in wrong if b"\n" in text[starts[n] : ends[n]]][:1]
        return int(min([*doubts, len(ends)]))

    def _is_wrong(self, data: NDArray[np.uint8], starts: Positions, ends: Positions, fields: Positions) -> Flags:
        """Which records have not the right number of fields, and are not blank. A delimiter may end a record."""
        trailing = (fields == self._columns + 1) & (data[ends - 1] == self._delimiter) & (ends > starts)
        wrong: Flags = (fields != self._columns) & ~trailing & ~self._is_blank(starts, ends)
        return wrong

    def _is_blank(self, starts: Positions, ends: Positions) -> Flags:
        blank: Flags = (ends == starts) & (self._columns > 1)
        return blank

    def _quotes(self, data: NDArray[np.uint8]) -> Positions:
        return np.flatnonzero(data == _QUOTE) if self._quoted else np.empty(0, dtype=np.intp)

    def _sort(
        self,
        text: bytes,
        data: NDArray[np.uint8],
        starts: Positions,
        ends: Positions,
        fields: Positions,
        feeds: Positions,
    ) -> bytes:
        """The accepted records; the others are rejected."""
        if not len(ends):
            return b""
        blank = self._is_blank(starts, ends)
        wrong = np.flatnonzero(self._is_wrong(data, starts, ends, fields))
        numbers = self.count.records + 1 + wrong - np.cumsum(blank)[wrong]
        lines = self.count.lines + 1 + np.searchsorted(feeds, starts[wrong])
        for place, number, line in zip(wrong, numbers, lines, strict=True):
            reason = _width_reason(int(fields[place]), self._columns)
            self._reject(int(number), int(line), reason, text[starts[place] : ends[place]])
        self.count.accepted += len(ends) - int(blank.sum()) - len(wrong)
        self.count.blank_lines += int(blank.sum())
        self.count.lines += int(np.searchsorted(feeds, len(text)))
        replaced = dict.fromkeys(np.flatnonzero(blank).tolist(), b"") | dict.fromkeys(
            wrong.tolist(), self._placeholder
        )
        return _replaced(text, starts, ends, replaced)

    def _fields(self, data: NDArray[np.uint8], ends: Positions, quotes: Positions) -> Positions:
        """How many fields each record has: delimiters outside quotes, and one."""
        delimiters = np.flatnonzero(data == self._delimiter)
        counted = np.diff(np.searchsorted(delimiters, ends), prepend=0) + 1
        opening, closing = quotes[: len(quotes) // 2 * 2 : 2], quotes[1::2]
        inside = np.searchsorted(delimiters, closing) - np.searchsorted(delimiters, opening)
        owner = np.searchsorted(ends, opening)
        known = (inside > 0) & (owner < len(ends))
        np.subtract.at(counted, owner[known], inside[known])
        return counted

    # ── record by record ─────────────────────────────────────────────────────────────────────────────────────

    def _one_by_one(self, text: bytes, *, last: bool, limit: int) -> tuple[bytes, bytes, bool]:
        """As `_take`, for at most `limit` lines."""
        accepted: list[bytes] = []
        at = 0
        stop = len(text) if last else len(text) - MAX_RECORD_BYTES - 1
        for _ in range(limit):
            if at >= stop:
                break
            line_end = _LINE_END.search(text, at)
            if line_end is None or line_end.start() - at > MAX_RECORD_BYTES:
                self._reject_next(TOO_LONG, text[at : at + MAX_RECORD_BYTES])
                accepted.append(self._placeholder)
                if line_end is None:
                    return b"".join(accepted), b"", True
                self.count.lines, at = self.count.lines + 1, line_end.end()
                continue
            line, end = text[at : line_end.start()], line_end
            record, after = self._record_at(text, at, end)
            reason = self._fault(record, line)
            if reason in (None, INVALID_ENCODING):
                end = after
            if reason is None:
                accepted.append(record + b"\n")
                self.count.accepted += 1
            elif reason:
                self._reject_next(reason, line)
                accepted.append(self._placeholder)
            else:
                self.count.blank_lines += 1
            self.count.line_ends.add(_LINE_ENDS[end[0]])
            self.count.lines += 1 + text.count(b"\n", at, end.start())
            at = end.end()
        return b"".join(accepted), text[at:], False

    def _record_at(self, text: bytes, at: int, line_end: re.Match[bytes]) -> tuple[bytes, re.Match[bytes]]:
        """The record that begins here, of one line or of several, and its end. Empty if its quotes are wrong."""
        line = text[at : line_end.start()]
        if not self._quoted or b'"' not in line:
            return line, line_end
        found = self._record.match(text, at, min(len(text), at + MAX_RECORD_BYTES))
        after = _LINE_END.match(text, found.end()) if found else None
        return (text[at : after.start()], after) if after else (b"", line_end)

    def _fault(self, record: bytes, line: bytes) -> str | None:
        """Why this is no record of the table: None if it is one, empty for a blank line."""
        if not line and self._columns > 1:
            return ""
        if not record and line:
            return BAD_QUOTES
        if not _is_utf_8(record):
            if not self._reject_invalid:
                raise NotUtf8
            return INVALID_ENCODING
        width = sum(1 for _ in self._field.finditer(record)) if self._quoted else record.count(self._delimiter) + 1
        trailing = width == self._columns + 1 and record.endswith(bytes([self._delimiter]))
        return None if trailing or width == self._columns else _width_reason(width, self._columns)

    def _reject_next(self, reason: str, data: bytes) -> None:
        self._reject(self.count.records + 1, self.count.lines + 1, reason, data)

    def _reject(self, record: int, line: int, reason: str, data: bytes) -> None:
        self.count.rejected.append(record)
        self.count.reasons[reason] += 1
        self._on_reject(Reject(record, line, reason, data))
        if self.count.reasons[BAD_QUOTES] > MAX_BAD_QUOTES:
            raise UnbalancedQuotes(
                f"More than {MAX_BAD_QUOTES} records up to line {line} have quotes that are not closed or not "
                'doubled. Quote fields as in RFC 4180: "a ""quoted"" word".'
            )


def _patterns(delimiter: str, quoted: bool) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Of a field with the delimiter before it, and of a record. A quote in an unquoted field is a character."""
    cut = re.escape(delimiter.encode())
    plain = rb"[^%b\r\n]*+" % cut
    one = rb'(?:"[^"]*+(?:""[^"]*+)*+"|(?!")%b)' % plain if quoted else plain
    return re.compile(rb"(?:\A|%b)%b" % (cut, one)), re.compile(rb"%b(?:%b%b)*+" % (one, cut, one))


def _sized(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in blocks that are large enough for the longest record."""
    waiting: list[bytes] = []
    size = 0
    for block in blocks:
        for start in range(0, len(block), BLOCK_BYTES):
            waiting.append(block[start : start + BLOCK_BYTES])
            size += len(waiting[-1])
            if size >= BLOCK_BYTES:
                yield b"".join(waiting)
                waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def _partition_line(block: bytes) -> tuple[bytes, bytes, bytes]:
    found = _LINE_END.search(block)
    return (block[: found.start()], found[0], block[found.end() :]) if found else (block, b"", b"")


def _replaced(text: bytes, starts: Positions, ends: Positions, replaced: Mapping[int, bytes]) -> bytes:
    """The records with others in the place of those with these numbers, from 0."""
    pieces, at = [], 0
    for place in sorted(replaced):
        pieces += [text[at : starts[place]], replaced[place]]
        at = int(ends[place]) + 1
    return b"".join([*pieces, text[at:]]) if pieces else text


def _width_reason(width: int, columns: int) -> str:
    return TOO_FEW if width < columns else TOO_MANY


def _is_utf_8(text: bytes) -> bool:
    return _first_invalid(text) is None


def _first_invalid(text: bytes) -> int | None:
    """The place of the first byte that is not UTF-8."""
    if text.isascii():
        return None
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None
