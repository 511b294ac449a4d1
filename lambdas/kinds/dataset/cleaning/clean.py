"""Cleans a CSV file: from its bytes to a table of typed columns, and a list of the rejected records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kinds.dataset.cleaning import table
from kinds.dataset.cleaning.chunks import ChunkFiles
from kinds.dataset.cleaning.rejects import MAX_LISTED, RejectsFile
from kinds.dataset.cleaning.sample import Sampler
from kinds.dataset.cleaning.table import Column
from kinds.dataset.cleaning.types import TEXT, ColumnType, Order, infer
from kinds.dataset.engine import Connection, engine
from kinds.dataset.errors import AmbiguousColumn, ColumnMissing, EmptyFile, NoRows, TooManyRejects, TooManyRows
from kinds.dataset.reading import dialect as dialects
from kinds.dataset.reading import encoding as encodings
from kinds.dataset.reading.dialect import Dialect
from kinds.dataset.reading.records import Count, NotUtf8, Splitter
from kinds.dataset.watch import Watch

HEAD_BYTES = 1024 * 1024
MAX_REJECTED_SHARE = 0.5
SHOWN_COLUMNS, SHOWN_CHARACTERS = 50, 60
"""Names in the message about a missing column."""
FEW_RECORDS = 20
"""So few records may all but one be rejected."""

READING, CONVERTING = 0.2, 0.6
"""Shares of the time of cleaning, for the progress: reading, and then converting each chunk."""

Source = Callable[[], Iterable[bytes]]
"""The bytes of the file from its beginning, in blocks. It may be called twice."""
CheckHeader = Callable[[Dialect], None]


@dataclass(frozen=True, slots=True)
class Files:
    """Where the results are written."""

    table: Path
    rejects: Path
    unreadable: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What came of a file. `unreadable`: by column, values that are null since they are not of its type."""

    encoding: str
    dialect: Dialect
    columns: tuple[Column, ...]
    rows_in: int
    rows_out: int
    rejected: Mapping[str, int]
    duplicates: int
    blank_lines: int
    line_ends: tuple[str, ...]
    unreadable: Mapping[str, int]
    examples: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Read:
    encoding: str
    dialect: Dialect
    count: Count
    chunks: Sequence[Path]
    values: Sequence[Mapping[str, int]]
    examples: Mapping[str, Sequence[Mapping[str, Any]]]


def clean(
    source: Source,
    folder: Path,
    files: Files,
    *,
    watch: Watch,
    date_orders: Mapping[str, Order] | None = None,
    types: Mapping[str, ColumnType] | None = None,
    drop_duplicates: bool = True,
    check_header: CheckHeader = lambda dialect: None,
    max_rows: int = 2**62,
    size: int = 0,
) -> Cleaned:
    """Clean a file. `types`: of columns by name, instead of inferred ones; other columns are left as text.

    `size`: of the file in bytes, for the progress. Raises RejectedDataset with what to do, and JobClosed.
    """
    read = _read(source, folder, files.rejects, watch, check_header, max_rows, size)
    chosen = _chosen(read, date_orders or {}, types)
    with engine(folder, watch) as connection:
        first, chosen, counts = _convert(connection, read, chosen, watch, fixed=types is not None)
        watch.advance(READING + CONVERTING)
        rejected = np.zeros(read.count.records, dtype=np.bool_)
        rejected[np.asarray(read.count.rejected, dtype=np.int64) - 1] = True
        repeated = table.duplicates(connection, first, rejected) if drop_duplicates else np.zeros_like(rejected)
        table.number_rows(connection, first, rejected | repeated)
        columns = tuple(Column(name, kind) for name, kind in zip(read.dialect.names, chosen, strict=True))
        rows = table.second_pass(connection, columns, files.table)
        table.require_equal(read.count.accepted - int(repeated.sum()), rows)
        unreadable = {columns[n].name: count for n, count in enumerate(counts) if count}
        places = [(n, columns[n].name) for n, count in enumerate(counts) if count]
        table.unreadable_values(connection, places, files.unreadable, MAX_LISTED)
    return Cleaned(
        encoding=read.encoding,
        dialect=read.dialect,
        columns=columns,
        rows_in=read.count.records,
        rows_out=rows,
        rejected=dict(read.count.reasons),
        duplicates=int(repeated.sum()),
        blank_lines=read.count.blank_lines,
        line_ends=tuple(sorted(read.count.line_ends)),
        unreadable=unreadable,
        examples=read.examples,
    )


def require_columns(dialect: Dialect, names: Mapping[str, str]) -> None:
    """Raises ColumnMissing or AmbiguousColumn. `names`: what a request names, by field of the input."""
    for field_name, name in names.items():
        same = [given for given in dialect.given if given.lower() == name.lower()]
        if name not in dialect.names:
            listed = ", ".join(given[:SHOWN_CHARACTERS] for given in dialect.names[:SHOWN_COLUMNS])
            raise ColumnMissing(f"{field_name}: the file has no column {name!r}. Its columns are: {listed}.")
        if len(same) > 1:
            raise AmbiguousColumn(f"{field_name}: the file has {len(same)} columns {name!r}. Rename all but one.")


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────


def _read(
    source: Source, folder: Path, rejects: Path, watch: Watch, check_header: CheckHeader, max_rows: int, size: int
) -> _Read:
    try:
        return _read_as(None, source, folder, rejects, watch, check_header, max_rows, size)
    except NotUtf8:
        encoding = encodings.detect(source())
        return _read_as(encoding, source, folder, rejects, watch, check_header, max_rows, size)


def _read_as(
    encoding: str | None,
    source: Source,
    folder: Path,
    rejects: Path,
    watch: Watch,
    check_header: CheckHeader,
    max_rows: int,
    size: int,
) -> _Read:
    """`encoding`: if the whole file was looked at before."""
    blocks = iter(source())
    head = _head(blocks)
    sniffed, mark = encodings.sniff(head)
    name = encoding or sniffed
    text = encodings.as_utf_8(_chain(head[mark:], blocks), name)
    head = _head(text)
    dialect = dialects.sniff(_whole_records(head, encoding))
    check_header(dialect)
    start = dialects.end_of_header(head, dialect)
    sampler = Sampler()
    with ExitStack() as stack:
        listed = stack.enter_context(RejectsFile(rejects))
        chunks = stack.enter_context(ChunkFiles(folder))
        splitter = Splitter(
            delimiter=dialect.delimiter,
            quoted=dialect.quoted,
            columns=len(dialect.names),
            on_reject=listed.add,
            lines=len(head[:start].splitlines()),
            reject_invalid=encoding is not None,
        )
        written = 0
        for block in sampler.watch(splitter.split(_chain(head[start:], text))):
            chunks.write(block)
            written += len(block)
            watch.advance(READING * written / size if size else 0.0)
            _require_few(splitter.count.records, max_rows)
    _check(splitter.count)
    values = sampler.columns(len(dialect.names), delimiter=dialect.delimiter, quoted=dialect.quoted)
    return _Read(name, dialect, splitter.count, chunks.paths, values, listed.examples)


def _whole_records(head: bytes, encoding: str | None) -> str:
    """Raises NotUtf8 if it is not known yet that the file is not."""
    try:
        return head.decode()
    except UnicodeDecodeError as error:
        if error.start >= len(head) - 4:  # a character that is cut
            return head[: error.start].decode()
        if encoding is None:
            raise NotUtf8 from None
        return head.decode(errors="replace")


def _require_few(records: int, most: int) -> None:
    if records > most:
        raise TooManyRows(f"The file has more than {most} records, which is the limit. Split it.")


def _check(count: Count) -> None:
    rejected = len(count.rejected)
    if not count.records:
        raise NoRows("The file has a header and no records.")
    if rejected > max(FEW_RECORDS, MAX_REJECTED_SHARE * count.records) or not count.accepted:
        reason, many = count.reasons.most_common(1)[0]
        raise TooManyRejects(
            f"{rejected} of {count.records} records were rejected, {many} of them as {reason}, first number "
            f"{count.rejected[0]}. Check the delimiter, the quotes and the number of fields."
        )


def _head(blocks: Iterator[bytes]) -> bytes:
    head = b""
    for block in blocks:
        head += block
        if len(head) >= HEAD_BYTES:
            break
    if not head:
        raise EmptyFile("The file is empty. Upload a CSV file with a header and records.")
    return head


def _chain(head: bytes, rest: Iterable[bytes]) -> Iterator[bytes]:
    yield head
    yield from rest


# ── types ────────────────────────────────────────────────────────────────────────────────────────────────────


def _chosen(
    read: _Read, date_orders: Mapping[str, Order], types: Mapping[str, ColumnType] | None
) -> list[ColumnType]:
    if types is not None:
        return [types.get(name, TEXT) for name in read.dialect.names]
    orders = [date_orders.get(name) for name in read.dialect.names]
    return [infer(values, order=order) for values, order in zip(read.values, orders, strict=True)]


def _convert(
    connection: Connection, read: _Read, types: Sequence[ColumnType], watch: Watch, *, fixed: bool
) -> tuple[table.FirstTable, list[ColumnType], list[int]]:
    """(table, types, unreadable values of each column). A column with too many is read as text, unless `fixed`."""
    chosen = list(types)
    while True:
        first = table.first_pass(
            connection,
            read.chunks,
            read.dialect,
            chosen,
            watch,
            on_done=lambda share: watch.advance(READING + CONVERTING * share),
        )
        table.require_equal(read.count.records, first.rows)
        counts = table.unreadable_counts(connection, first, chosen)
        worst = [] if fixed else table.too_unreadable(connection, first, chosen, counts)
        if not worst:
            for chunk in read.chunks:
                chunk.unlink()
            return first, chosen, counts
        for place in worst:
            chosen[place] = ColumnType("text", note=f"not_{chosen[place].name}")
