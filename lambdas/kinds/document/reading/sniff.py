"""Detects the media type of a document by its content, not by its name."""

from __future__ import annotations

import re

from core.errors import EmptyDocument, UnsupportedType
from kinds.document.reading.text import byte_order_mark, decode, is_blank

PDF, HTML, MARKDOWN, PLAIN = "application/pdf", "text/html", "text/markdown", "text/plain"

_HEAD_BYTES = 4096
_PDF_HEADER = re.compile(rb"%PDF-\d")
_PDF_HEADER_WITHIN = 1024  # bytes (ISO 32000-1, implementation note 13)
_PDF_TRAILER = re.compile(rb"startxref\s+\d+\s+%%EOF\s*\Z")
# Atomic groups, so that many comments do not make the match exponential.
_HTML_START = re.compile(
    r"(?>\s+|<!--.*?-->|<\?.*?>)*+<(?:!doctype\s+html|(?:html|head|body|title|meta|link|base|script|style)\b)",
    re.IGNORECASE | re.DOTALL,
)
_HTML_FRAGMENT = re.compile(
    r"(?>\s+|<!--.*?-->)*+<(?:h[1-6]|p|div|span|a|b|i|em|strong|font|br|hr|img|table|ul|ol|dl|pre"
    r"|blockquote|center|main|article|section|header|footer|nav|aside|form|figure)(?=[\s/>])",
    re.IGNORECASE | re.DOTALL,
)
_MARKDOWN_LINE = re.compile(r"^(?:#{1,6}[ \t]+\S|```|~~~)", re.MULTILINE)

_ZIP = "a ZIP container, as DOCX, XLSX, PPTX, ODT and EPUB are: export it as PDF or HTML"
_IMAGE = "an image: run text recognition (OCR) on it and send the text or a searchable PDF"
_COMPRESSED = "a compressed file: unpack it and send its content"
_UNSUPPORTED = (
    (b"PK\x03\x04", _ZIP),
    (b"PK\x05\x06", _ZIP),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office file (DOC, XLS, PPT): export it as PDF or HTML"),
    (b"{\\rtf", "an RTF file: export it as PDF, HTML or UTF-8 text"),
    (b"%!PS", "a PostScript file: convert it to PDF"),
    (b"\x89PNG\r\n\x1a\n", _IMAGE),
    (b"\xff\xd8\xff", _IMAGE),
    (b"GIF8", _IMAGE),
    (b"II*\x00", _IMAGE),
    (b"MM\x00*", _IMAGE),
    (b"\x1f\x8b", _COMPRESSED),
    (b"\xfd7zXZ\x00", _COMPRESSED),
    (b"7z\xbc\xaf\x27\x1c", _COMPRESSED),
    (b"\x7fELF", "a program, not a document: send a PDF, an HTML page or UTF-8 text"),
)


def sniff(data: bytes) -> str:
    """The media type of `data`: PDF, HTML, Markdown or plain text.

    The first bytes decide. A PDF header after them, within the first 1,024 bytes, counts unless the rest is a
    page or a text. Raises EmptyDocument, or UnsupportedType with advice.
    """
    if not data.strip():
        raise EmptyDocument("The document is empty.")
    header = _PDF_HEADER.search(data[:_PDF_HEADER_WITHIN])
    if header and not data[: header.start()].strip(b"\xef\xbb\xbf\x00 \t\r\n\f"):
        return PDF
    _refuse_unsupported(data)
    if _HTML_START.match(_head(data)):
        return HTML
    if header and _PDF_TRAILER.search(data[-_PDF_HEADER_WITHIN:]):
        return PDF
    try:
        return _sniff_text(decode(data))
    except UnsupportedType:
        if header:
            return PDF
        raise


def _head(data: bytes) -> str:
    mark, encoding = byte_order_mark(data)
    return data[len(mark) : _HEAD_BYTES].decode(encoding or "latin-1", errors="replace")


def _refuse_unsupported(data: bytes) -> None:
    for signature, advice in _UNSUPPORTED:
        if data.startswith(signature):
            raise UnsupportedType(f"The document is {advice}.")


def _sniff_text(text: str) -> str:
    if is_blank(text):
        raise EmptyDocument("The document has no visible text.")
    if _MARKDOWN_LINE.search(text):
        return MARKDOWN
    return HTML if _HTML_FRAGMENT.match(text) else PLAIN
