"""The cleaned table: typed columns in Parquet, made in two passes over the accepted records.

The first pass reads every field as text and converts it. It keeps the texts that could not be converted, and two
64-bit hashes of each record's fields. The second pass drops repeated records, and numbers the others as in the
file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.errors import CountMismatch
from kinds.dataset.cleaning.conversion import identifier, literal, typed, unreadable
from kinds.dataset.cleaning.types import MAX_UNREADABLE, ColumnType
from kinds.dataset.engine import Connection, threads
from kinds.dataset.reading.dialect import RECORD_NUMBER, Dialect
from kinds.dataset.reading.records import MAX_RECORD_BYTES
from kinds.dataset.watch import Watch


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: ColumnType


@dataclass(frozen=True, slots=True)
class FirstTable:
    """Parquet files with the rows in order, and how many rows are before each. The last number is that of all."""

    files: tuple[Path, ...]
    starts: tuple[int, ...]

    @property
    def rows(self) -> int:
        return self.starts[-1]

    @property
    def sql(self) -> str:
        """All rows, as a table of SQL without an order."""
        return f"read_parquet([{', '.join(literal(str(file)) for file in self.files)}])"

    @property
    def numbered_sql(self) -> str:
        """All rows in order, with the number `n`, from 0."""
        selects = (
            f"SELECT *, file_row_number + {start} AS n "
            f"FROM read_parquet({literal(str(file))}, file_row_number = true)"
            for file, start in zip(self.files, self.starts, strict=False)
        )
        return f"({' UNION ALL '.join(selects)})"


def first_pass(
    connection: Connection,
    chunks: Sequence[Path],
    dialect: Dialect,
    types: Sequence[ColumnType],
    watch: Watch,
    on_done: Callable[[float], None] = lambda share: None,
) -> FirstTable:
    """Write the typed columns `v0…`, the texts that are not of the type `u0…`, and the hashes `h1`, `h2`.

    Several threads of one query would mix the rows of a CSV at the borders of their parts, with DuckDB 2.0.1, so
    each chunk has a query with one thread.
    """
    names = [f"c{n}" for n in range(len(types))]
    inner = ", ".join(
        f"{typed(name, kind)} AS v{n}" for n, (name, kind) in enumerate(zip(names, types, strict=True))
    )
    outer = [f"v{n}" for n in range(len(types))]
    outer += [f"{unreadable(f'c{n}', f'v{n}')} AS u{n}" for n, kind in enumerate(types) if kind.name != "text"]
    fields = ", ".join(names)
    files = [chunk.with_suffix(".parquet") for chunk in chunks]
    copies = [
        f"COPY (SELECT {', '.join(outer)}, h1, h2 FROM (SELECT {fields}, {inner}, hash({fields}) AS h1, "
        f"hash('~', {fields}) AS h2 FROM {_read_csv(chunk, dialect, names)})) "
        f"TO {literal(str(file))} (FORMAT parquet, COMPRESSION lz4)"
        for chunk, file in zip(chunks, files, strict=True)
    ]
    connection.execute("SET threads = 1")
    _side_by_side(connection, copies, watch, on_done)
    connection.execute(f"SET threads = {threads()}")
    rows = (scalar(connection, f"SELECT count(*) FROM read_parquet({literal(str(file))})") for file in files)
    return FirstTable(tuple(files), tuple(accumulate(rows, initial=0)))


def _side_by_side(
    connection: Connection, statements: Sequence[str], watch: Watch, on_done: Callable[[float], None]
) -> None:
    cursors = [connection.cursor() for _ in range(min(threads(), len(statements)))]
    try:
        running = [cursors[n % len(cursors)].start(statement) for n, statement in enumerate(statements)]
        for number, each in enumerate(running, 1):
            watch.wait_for(each)
            on_done(number / len(running))
    finally:
        for cursor in cursors:
            cursor.close()


def _read_csv(records: Path, dialect: Dialect, names: Sequence[str]) -> str:
    columns = ", ".join(f"'{name}': 'VARCHAR'" for name in names)
    quote = "'\"'" if dialect.quoted else "''"
    return (
        f"read_csv({literal(str(records))}, auto_detect = false, header = false, "
        f"delim = {literal(dialect.delimiter)}, quote = {quote}, escape = {quote}, "
        "new_line = '\\n', strict_mode = true, nullstr = '', "
        f"encoding = 'utf-8', max_line_size = {2 * MAX_RECORD_BYTES}, columns = {{{columns}}})"
    )


def unreadable_counts(connection: Connection, first: FirstTable, types: Sequence[ColumnType]) -> list[int]:
    """How many values of each column are not of its type."""
    counted = [f"count(u{n})" if kind.name != "text" else "0" for n, kind in enumerate(types)]
    row = connection.execute(f"SELECT {', '.join(counted)} FROM {first.sql}").fetchone()
    return [int(value) for value in row or ()]


def too_unreadable(
    connection: Connection, first: FirstTable, types: Sequence[ColumnType], counts: Sequence[int]
) -> list[int]:
    """The places of columns with more than 5 % unreadable values: they must be read as text."""
    suspects = [n for n, count in enumerate(counts) if count]
    if not suspects:
        return []
    counted = ", ".join(f"count(v{n})" for n in suspects)
    row = connection.execute(f"SELECT {counted} FROM {first.sql}").fetchone() or ()
    return [
        n for n, readable in zip(suspects, row, strict=True) if counts[n] > MAX_UNREADABLE * (readable + counts[n])
    ]


def duplicates(connection: Connection, first: FirstTable, rejected: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rows have the same fields as an earlier one. Rejected rows count as no rows."""
    found = connection.execute(f"SELECT h1, h2 FROM {first.numbered_sql}").fetchnumpy()
    one, two = np.asarray(found["h1"], dtype=np.uint64), np.asarray(found["h2"], dtype=np.uint64)
    order = np.argsort(one, kind="stable")
    ordered = one[order]
    same = np.flatnonzero(ordered[1:] == ordered[:-1])
    members = np.unique(np.concatenate((order[same], order[same + 1])))
    members = members[~rejected[members]]
    members = members[np.lexsort((members, two[members], one[members]))]
    again = (one[members[1:]] == one[members[:-1]]) & (two[members[1:]] == two[members[:-1]])
    repeated = np.zeros(len(one), dtype=np.bool_)
    repeated[members[1:][again]] = True
    return repeated


def number_rows(connection: Connection, first: FirstTable, dropped: NDArray[np.bool_]) -> None:
    """Make the view `numbered`: the first table without the dropped rows, with the number of each record.

    A join would lose the order of the rows, and a list of numbers would be slow: a string of bits is neither.
    """
    bits = (dropped.astype(np.uint8) + ord("0")).tobytes().decode()
    connection.execute("SET VARIABLE dropped = ?::BIT", [bits])
    connection.execute(
        f"CREATE OR REPLACE TEMP VIEW numbered AS SELECT n + 1 AS record, * FROM {first.numbered_sql} "
        "WHERE get_bit(getvariable('dropped'), n::INT) = 0"
    )


def second_pass(connection: Connection, columns: Sequence[Column], target: Path) -> int:
    """Write the table from the view `numbered`. Returns its rows."""
    named = ", ".join(f"v{place} AS {identifier(each.name)}" for place, each in enumerate(columns))
    connection.execute(
        f"COPY (SELECT record AS {RECORD_NUMBER}, {named} FROM numbered) TO {literal(str(target))} "
        "(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1)"
    )
    return scalar(connection, f"SELECT count(*) FROM read_parquet({literal(str(target))})")


def unreadable_values(connection: Connection, columns: Iterable[tuple[int, str]], target: Path, most: int) -> None:
    """Write record, column and text of values that are null because they are not of the type."""
    parts = [
        f'SELECT record, {literal(name)} AS "column", u{place} AS text FROM numbered WHERE u{place} IS NOT NULL'
        for place, name in columns
    ]
    if not parts:
        target.touch()
        return
    select = f'SELECT * FROM ({" UNION ALL ".join(parts)}) ORDER BY record, "column" LIMIT {most}'
    connection.execute(f"COPY ({select}) TO {literal(str(target))} (FORMAT json)")


def scalar(connection: Connection, sql: str) -> int:
    row = connection.execute(sql).fetchone()
    return int(row[0]) if row else 0


def require_equal(counted: int, read: int) -> None:
    """Raises CountMismatch: the engine has not read what was counted."""
    if counted != read:
        raise CountMismatch(f"{counted} records were counted, but {read} were read. Retry the job.")
