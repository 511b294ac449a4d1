"""Detection of media types (kinds.document.reading.sniff)."""

from __future__ import annotations

import gzip
import io
import time
import zipfile

import pytest

from core.errors import EmptyDocument, UnsupportedType
from kinds.document.reading.sniff import HTML, MARKDOWN, PDF, PLAIN, sniff
from tests.support import pdfs

A_PDF = pdfs.write(pdfs.document(pdfs.show("hello")))


def docx() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("word/document.xml", "<w:document/>")
    return file.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        A_PDF,
        b"\xef\xbb\xbf" + A_PDF,
        b"\r\n \x00" + A_PDF,
        b"HTTP/1.1 200 OK\r\nContent-Type: application/pdf\r\n\r\n" + A_PDF,
        b"From a mail\n%PDF-1.4\nstartxref\n9\n%%EOF\n",
        b"junk before a PDF cut off\n" + A_PDF[:100],
        b"%PDF-1.7",
    ],
)
def test_pdf(data: bytes) -> None:
    """A PDF header at the start, or after other bytes that are not text, makes a PDF."""
    assert sniff(data) == PDF


@pytest.mark.parametrize(
    "data",
    [
        b"%PDF is a file format.",
        b"A file that begins with %PDF-1.7 and ends with startxref 9 %%EOF is a PDF.",
        "El «%PDF-1.4» de la cabecera".encode(),
        b"x" * 1022 + b"\n%PDF-1.4\nstartxref\n9\n%%EOF\n",
    ],
)
def test_text_about_pdf(data: bytes) -> None:
    """A text that contains a PDF header is text."""
    assert sniff(data) == PLAIN


@pytest.mark.parametrize(
    "data",
    [
        b"<!DOCTYPE html><p>x",
        b"\n<!-- saved -->\n<!-- twice --><!doctype  HTML>x",
        b"<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'/>",
        b"\xef\xbb\xbf<HTML>x",
        b"<meta charset=windows-1252>caf\xe9",
        b"\xff\xfe" + "<html>ñ".encode("utf-16-le"),
        b"<div class='x'>a fragment</div>",
        b"<p>a fragment",
        b"<html><!--\n" + A_PDF,
    ],
)
def test_html(data: bytes) -> None:
    """A page is detected in any encoding. Of a polyglot, the first bytes decide."""
    assert sniff(data) == HTML


@pytest.mark.parametrize(
    "data",
    [
        b"# Title\n\ntext",
        b"text\n\n### Deeper\n",
        b"text\n```python\nprint()\n```\n",
        b'<p align="center"><img src="logo.png"></p>\n\n# Project\n\nText',
    ],
)
def test_markdown(data: bytes) -> None:
    """A heading or a code fence makes Markdown, also after HTML."""
    assert sniff(data) == MARKDOWN


@pytest.mark.parametrize(
    "data",
    [
        b"hello",
        "¿Qué tal?".encode(),
        "日本語".encode(),
        b"#hashtag",
        b"a < b > c",
        b"<rss></rss>",
        b"<project>",
        b"MZ",
    ],
)
def test_plain(data: bytes) -> None:
    """Other text is plain text."""
    assert sniff(data) == PLAIN


@pytest.mark.parametrize("data", [b"", b" \n\t\r\n", b"\xef\xbb\xbf", b"\xff\xfe", "\u200b\u3000".encode()])
def test_empty(data: bytes) -> None:
    """A document without a visible character is empty."""
    with pytest.raises(EmptyDocument):
        sniff(data)


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        (docx(), "DOCX.*export it as PDF or HTML"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512), "old Office file.*export"),
        (rb"{\rtf1\ansi Hello}", "RTF.*export"),
        (b"%!PS-Adobe-3.0\nshowpage", "PostScript.*convert it to PDF"),
        (b"\x89PNG\r\n\x1a\n" + bytes(64), "image.*OCR"),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF", "image.*OCR"),
        (gzip.compress(b"hello", mtime=0), "unpack it"),
        (b"\x7fELF\x02\x01\x01" + bytes(64), "program"),
        (bytes(range(256)), "binary file.*Export it"),
        ("Málaga, otoño".encode("latin-1"), "save it as UTF-8"),
    ],
)
def test_unsupported(data: bytes, advice: str) -> None:
    """Other types are refused with their name and what to do."""
    with pytest.raises(UnsupportedType, match=advice):
        sniff(data)


def test_linear_time() -> None:
    """Rows of comments, backquotes and brackets take linear time."""
    started = time.perf_counter()
    for piece in (b"<!---->", b"<?x?>", b"<!--", b"#", b"# ", b"startxref 1 ", b"[", b"\n"):
        sniff(piece * 100_000 + b"x")
    assert time.perf_counter() - started < 5
