"""The delimiter, the quoting and the header of a CSV file, by its beginning.

- The delimiter is the one of `, ; tab |` that cuts most records into as many fields as the first has; of several,
  the one that gives most fields.
- Fields are quoted as in RFC 4180, unless there are quotes and none begins a field.
- The first record is the header. Empty and repeated names are replaced, and the renamings reported.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from kinds.dataset.errors import NotDelimitedText, TooManyColumns, UnbalancedQuotes

DELIMITERS = ",;\t|"
RECORD_NUMBER = "record_number"
"""The first column of the cleaned table: the number of the record in the file."""
MAX_COLUMNS = 2000
MAX_HEADER_BYTES = 1_000_000
SAMPLE_RECORDS = 200


@dataclass(frozen=True, slots=True)
class Dialect:
    """`names`: of the columns, all different. `given`: as the header has them."""

    delimiter: str
    quoted: bool
    names: tuple[str, ...]
    given: tuple[str, ...]

    @property
    def renamed(self) -> dict[str, str]:
        """The new names by position (from 1) and the given name."""
        pairs = zip(self.given, self.names, strict=True)
        return {f"{n}: {old}": new for n, (old, new) in enumerate(pairs, 1) if old != new}


def sniff(head: str) -> Dialect:
    """`head`: the beginning of the file, of whole records if possible. Raises RejectedDataset."""
    lines = head.lstrip("\r\n")
    quoted = _is_quoted(lines)
    delimiter = max(DELIMITERS, key=lambda each: _score(lines, each, quoted))
    given = [name.strip() for name in next(iter(_records(lines, delimiter, quoted, 1)), [])]
    if len(given) > MAX_COLUMNS:
        raise TooManyColumns(f"The file has {len(given)} columns; the limit is {MAX_COLUMNS}. Leave some out.")
    if not any(given):
        raise NotDelimitedText("The first record is not a header. Begin the file with the names of the columns.")
    return Dialect(delimiter, quoted, tuple(unique_names(given)), tuple(given))


def end_of_header(head: bytes, dialect: Dialect) -> int:
    """How many bytes the header has, with its line end and blank lines before it. Raises UnbalancedQuotes."""
    blank = len(head) - len(head.lstrip(b"\r\n"))
    content = rb'(?:[^"\r\n]|"[^"]*")*' if dialect.quoted else rb"[^\r\n]*"
    found = re.compile(content + rb"(?:\r\n|\n|\r|\Z)").match(head, blank)
    if found is None or found.end() - blank > MAX_HEADER_BYTES:
        raise UnbalancedQuotes("A quote in the header (line 1) is not closed. Close it, or remove it.")
    return found.end()


def unique_names(given: Sequence[str], *, reserved: Collection[str] = (RECORD_NUMBER,)) -> list[str]:
    """Names that differ in more than case. An empty one becomes `column_3`, a repeated one `name_2`."""
    taken, names = {name.lower() for name in reserved}, []
    counted = {name.lower() for name in given}
    for place, name in enumerate(given, 1):
        base = new = name or f"column_{place}"
        number = 1
        while new.lower() in taken or (new != name and new.lower() in counted):
            number += 1
            new = f"{base}_{number}"
        taken.add(new.lower())
        names.append(new)
    return names


def _is_quoted(text: str) -> bool:
    return '"' not in text or re.search(r'(?:^|[,;\t|\r\n])"', text) is not None


def _score(text: str, delimiter: str, quoted: bool) -> tuple[float, int]:
    widths = [len(record) for record in _records(text, delimiter, quoted, SAMPLE_RECORDS)]
    if not widths or widths[0] < 2:
        return 0.0, 0
    same = sum(width == widths[0] for width in widths) / len(widths)
    return (round(same, 1), widths[0])


def _records(text: str, delimiter: str, quoted: bool, most: int) -> list[list[str]]:
    csv.field_size_limit(10**9)
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting)
    return [record for record, _ in zip((record for record in reader if record), range(most), strict=False)]
