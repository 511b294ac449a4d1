"""Plain text (kinds.document.reading.text)."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import UnsupportedType
from kinds.document.reading.text import clean, decode, is_blank

WORDS = "Año nuevo, 中文, Łódź, 😀👩‍🚀"


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (b"", "utf-8"),
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)
def test_unicode_encodings(mark: bytes, encoding: str) -> None:
    """UTF-8 is read with and without a byte order mark, UTF-16 and UTF-32 with one. The mark is removed."""
    assert decode(mark + WORDS.encode(encoding)) == WORDS


def test_older_encoding() -> None:
    """Latin-1 is refused with the position of the first invalid byte."""
    with pytest.raises(UnsupportedType, match=r"not valid UTF-8 \(first at byte 1\).*save it as UTF-8"):
        decode("Año nuevo en Málaga".encode("latin-1"))


@pytest.mark.parametrize("data", [b"\x00\x01\x02\xff\xfe" * 9, "ABC".encode("utf-16-le"), b"ab\x00", b"\x01\x02"])
def test_binary(data: bytes) -> None:
    """Many control characters make a binary file, even if it is valid UTF-8."""
    with pytest.raises(UnsupportedType, match="binary file"):
        decode(data)


def test_a_few_controls_are_text() -> None:
    """A few control characters do not make a binary file."""
    line = "an ordinary line of a log, long enough to be one of many, and as dull as they come. " * 2
    assert decode(f"\x1b[1m{line}".encode()) == f"\x1b[1m{line}"


@pytest.mark.parametrize(
    ("dirty", "cleaned"),
    [
        ("a\r\nb\rc\vd\n\ne", "a\nb\nc\nd\n\ne"),
        ("page\fpage", "page\n\npage"),
        ("t\tab\x00\x07\x1b\x7f\x1f", "t\tab"),
        ("x\ufffey\uffffz", "xyz"),
        ("lone \ud83d and \ude00", "lone \ufffd and \ufffd"),
        ("e\u0301 ﬁ \u00a0\u200d\u2028", "e\u0301 ﬁ \u00a0\u200d\u2028"),
    ],
)
def test_clean(dirty: str, cleaned: str) -> None:
    """Line ends become line feeds and invisible characters are removed. Nothing is normalized."""
    assert clean(dirty) == cleaned


@given(st.text(st.characters(codec=None)))
def test_clean_is_idempotent(text: str) -> None:
    """Clean text can be encoded, and cleaning it again changes nothing."""
    once = clean(text)
    assert once.encode().decode() == once == clean(once)


@given(st.text())
def test_clean_keeps_printable_characters(text: str) -> None:
    """No printable character is removed or changed."""
    assert [char for char in clean(text) if char.isprintable()] == [char for char in text if char.isprintable()]


@pytest.mark.parametrize("text", ["", " \n\t\u00a0\u3000", "\u200b\u200d\ufeff", "\ufffd \ufffd", "\ue000\uf8ff"])
def test_blank(text: str) -> None:
    """Spaces, invisible, private-use and replacement characters are blank."""
    assert is_blank(text)


@pytest.mark.parametrize("text", [".", "😀", "文", "\ufffdx"])
def test_not_blank(text: str) -> None:
    """One visible character of any script is not blank."""
    assert not is_blank(text)
