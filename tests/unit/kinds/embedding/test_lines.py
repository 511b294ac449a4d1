"""What the lines of a bulk embedding are read as (kinds.embedding.lines)."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import DocumentTooLarge, EmptyDocument
from kinds.embedding import lines
from kinds.embedding.lines import MAX_CHARACTERS, Line

NO_SURROGATES = st.characters(exclude_categories=["Cs"])
SOLID = st.text(NO_SURROGATES, min_size=1, max_size=20).filter(str.strip)


@given(st.lists(st.tuples(st.none() | SOLID, SOLID), min_size=1), st.booleans(), st.booleans(), st.booleans())
def test_any_lines(given_lines: list[tuple[str | None, str]], bom: bool, crlf: bool, last_newline: bool) -> None:
    """Every line is read in order with its id and text, whatever characters, line ends and marks there are."""
    values = [text if line_id is None else {"id": line_id, "text": text} for line_id, text in given_lines]
    end = "\r\n" if crlf else "\n"
    data = end.join(json.dumps(value, ensure_ascii=False) for value in values) + (end if last_newline else "")
    found = lines.read((b"\xef\xbb\xbf" if bom else b"") + data.encode())
    assert [line.number for line in found.lines] == list(range(1, len(values) + 1))
    texts = [(line.id, found.texts[line.text]) for line in found.lines if line.text is not None]
    assert texts == given_lines
    assert len(set(found.texts)) == len(found.texts)


@given(st.binary(min_size=1))
def test_any_bytes(data: bytes) -> None:
    """Whatever the bytes are, each line has a text or an error, and a text can be encoded."""
    try:
        found = lines.read(data)
    except EmptyDocument:
        assert data == b"\xef\xbb\xbf"
        return
    assert all((line.text is None) != (line.error is None) for line in found.lines)
    "".join(found.texts).encode()


@pytest.mark.parametrize(
    ("raw", "code", "message"),
    [
        (b"", "empty", "blank"),
        (b"  \t", "empty", "blank"),
        (b'""', "empty", "white space"),
        (b'{"text": " \\n"}', "empty", "white space"),
        (b'"caf\xe9"', "invalid_line", "Byte 5 of the line is not UTF-8"),
        (b"plain", "invalid_line", r"not JSON \(column 1"),
        (b'"a\x00b"', "invalid_line", "not JSON"),
        (b'"a" "b"', "invalid_line", "not JSON"),
        (b"[" * 100_000, "invalid_line", "not JSON"),
        (b"7", "invalid_line", "neither a string nor an object"),
        (b'["a"]', "invalid_line", "neither a string nor an object"),
        (b"null", "invalid_line", "neither a string nor an object"),
        (b'{"id": "a"}', "invalid_line", "text: it must be a string"),
        (b'{"text": 7}', "invalid_line", "text: it must be a string"),
        (b'{"text": "a", "id": 7}', "invalid_line", "id: it must be a string"),
        (b'{"text": "a", "id": ""}', "invalid_line", "id: it must be a string"),
        (b'{"text": "a", "id": "\\udc00"}', "invalid_line", "id: it must be a string"),
        (b'{"text": "a", "txet": "b"}', "invalid_line", "'txet': a line has only the fields"),
        (b'"\\ud800"', "invalid_line", "lone surrogate"),
        (json.dumps("x" * (MAX_CHARACTERS + 1)).encode(), "too_long", "at most 50000"),
    ],
)
def test_errors(raw: bytes, code: str, message: str) -> None:
    """A line that cannot be embedded says why, and does not stop the lines around it."""
    found = lines.read(b'"before"\n' + raw + b'\n"after"\n')
    first, wrong, last = found.lines
    assert (first.text, last, found.texts) == (0, Line(3, None, 1), ["before", "after"])
    assert wrong.error is not None
    assert (wrong.number, wrong.error.code) == (2, code)
    assert re.search(message, wrong.error.message)


def test_an_error_has_the_id() -> None:
    """An error of a line with a valid id names the id."""
    (line,) = lines.read(b'{"id": "mine", "text": ""}').lines
    assert line.id == "mine"


def test_accepted_texts() -> None:
    """A NUL written as an escape, tokens of a tokenizer, and separators of Unicode are part of a text."""
    texts = ["a\x00b", "<|endoftext|>", "one\u2028two\x85three\x0cfour", "x" * MAX_CHARACTERS]
    found = lines.read("\n".join(json.dumps(text, ensure_ascii=text != texts[2]) for text in texts).encode())
    assert found.texts == texts


def test_duplicates() -> None:
    """Lines with the same text share it; the id plays no part."""
    found = lines.read(b'"a"\n{"id": "1", "text": "a"}\n"b"\n"a"\n')
    assert ([line.text for line in found.lines], found.texts) == ([0, 0, 1, 0], ["a", "b"])


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf"])
def test_no_lines(data: bytes) -> None:
    """A file without lines fails the job."""
    with pytest.raises(EmptyDocument):
        lines.read(data)


def test_too_many_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with more lines than the limit is refused; one with as many is not."""
    monkeypatch.setattr(lines, "MAX_LINES", 3)
    assert len(lines.read(b'"a"\n' * 3).lines) == 3
    with pytest.raises(DocumentTooLarge, match="more than 3 lines"):
        lines.read(b'"a"\n' * 4)
