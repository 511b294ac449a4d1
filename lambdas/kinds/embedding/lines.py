"""Reads the lines of a bulk embedding: JSON Lines in UTF-8, each line a text, with an id or without.

https://jsonlines.org. A byte order mark, CRLF and a last line without a newline are accepted. A line that cannot
be embedded is an error of that line and does not stop the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from core.errors import DocumentTooLarge, EmptyDocument
from core.models import encodable

MAX_LINES = 50_000
"""Their vectors of 1,024 numbers are 0.2 GB of Parquet and 0.6 GB of JSON."""
MAX_CHARACTERS = 50_000  # https://docs.aws.amazon.com/bedrock/latest/userguide/titan-embedding-models.html
MAX_ID_CHARACTERS = 256
_BOM = b"\xef\xbb\xbf"
_BLANK = " \t\r"


@dataclass(frozen=True, slots=True)
class LineError:
    """Why a line has no vector. `code` is stable: empty, too_long, invalid_line, model_rejected, model_failed."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Line:
    """`number` counts from 1. `text` is the number of its text among the different ones, from 0."""

    number: int
    id: str | None = None
    text: int | None = None
    error: LineError | None = None


@dataclass(slots=True)
class Lines:
    """All lines in order, and the different texts in the order of their first line."""

    lines: list[Line] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


class _Invalid(Exception):
    """A line that cannot be embedded."""

    def __init__(self, code: str, message: str, *, id: str | None = None) -> None:
        super().__init__(message)
        self.code, self.id = code, id


def read(data: bytes) -> Lines:
    """Raises EmptyDocument if there is no line, and DocumentTooLarge for more than MAX_LINES."""
    found, numbers = Lines(), dict[str, int]()
    for number, raw in enumerate(_split(data), 1):
        if number > MAX_LINES:
            raise DocumentTooLarge(f"The file has more than {MAX_LINES} lines. Split it.")
        try:
            line_id, text = _parse(raw)
        except _Invalid as error:
            found.lines.append(Line(number, error.id, error=LineError(error.code, str(error))))
            continue
        if text not in numbers:
            numbers[text] = len(found.texts)
            found.texts.append(text)
        found.lines.append(Line(number, line_id, text=numbers[text]))
    if not found.lines:
        raise EmptyDocument("The file has no lines.")
    return found


def _split(data: bytes) -> Iterator[bytes]:
    """Lines end with LF or CRLF. Other line separators of Unicode are part of a text."""
    body = data.removeprefix(_BOM)
    lines = body.split(b"\n")
    return iter(lines if lines[-1] else lines[:-1])


def _parse(raw: bytes) -> tuple[str | None, str]:
    """(id, text) of a line. Raises _Invalid."""
    try:
        line = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _Invalid("invalid_line", f"Byte {error.start + 1} of the line is not UTF-8.") from None
    if not line.strip(_BLANK):
        raise _Invalid("empty", "The line is blank.")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        place = f" (column {error.colno}: {error.msg})" if isinstance(error, json.JSONDecodeError) else ""
        raise _Invalid("invalid_line", f"The line is not JSON{place}.") from None
    line_id, text = _fields(value)
    return line_id, _checked(text, line_id)


def _fields(value: Any) -> tuple[str | None, str]:
    """(id, text) of a line's JSON value. Raises _Invalid."""
    if isinstance(value, str):
        return None, value
    if not isinstance(value, dict):
        raise _Invalid("invalid_line", "The line is neither a string nor an object.")
    line_id, text = value.get("id"), value.get("text")
    if line_id is not None and not _is_id(line_id):
        raise _Invalid("invalid_line", f"id: it must be a string of 1 to {MAX_ID_CHARACTERS} characters.")
    if unknown := sorted(value.keys() - {"id", "text"}):
        raise _Invalid("invalid_line", f"{unknown[0][:50]!a}: a line has only the fields id and text.", id=line_id)
    if not isinstance(text, str):
        raise _Invalid("invalid_line", "text: it must be a string.", id=line_id)
    return line_id, text


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_ID_CHARACTERS and _is_encodable(value)


def _checked(text: str, line_id: str | None) -> str:
    """The same text. Raises _Invalid if no model can embed it."""
    if not text.strip():
        raise _Invalid("empty", "The text is empty or only white space.", id=line_id)
    if not _is_encodable(text):
        raise _Invalid("invalid_line", "text: it has a lone surrogate, which is not a character.", id=line_id)
    if len(text) > MAX_CHARACTERS:
        message = f"The text has {len(text)} characters. The model takes at most {MAX_CHARACTERS}. Split it."
        raise _Invalid("too_long", message, id=line_id)
    return text


def _is_encodable(text: str) -> bool:
    try:
        return bool(encodable(text))
    except ValueError:
        return False
