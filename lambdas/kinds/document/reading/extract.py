"""The process that parses untrusted PDF and HTML: `python -m kinds.document.reading.extract`.

It reads the document from standard input. It writes one line of JSON to standard output: `{"ok": true, "pages": …,
"size": …}` followed by `size` bytes of UTF-8, or `{"ok": false, "error": …, "message": …}` where `error` is the
name of a class in `core.errors`. After any other output the parser has failed or was killed.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys

from core.errors import DocumentTooLarge, InvalidDocument, NoText, TooComplex
from kinds.document.reading import sandbox
from kinds.document.reading.sniff import PDF
from kinds.document.reading.text import clean, is_blank


def main(media_type: str, max_characters: int, timeout_seconds: float, memory_mb: int) -> None:
    """Limit this process, then parse the document on standard input."""
    sandbox.enter()
    _limit_process(timeout_seconds, memory_mb)
    try:
        text, pages = extract(sys.stdin.buffer.read(), media_type=media_type, max_characters=max_characters)
        _write_result(text.encode(), ok=True, pages=pages)
    except InvalidDocument as error:
        _write_result(ok=False, error=type(error).__name__, message=str(error))
    except (MemoryError, RecursionError):
        message = "The document is too complex to read. Simplify it."
        _write_result(ok=False, error=TooComplex.__name__, message=message)


def extract(data: bytes, *, media_type: str, max_characters: int) -> tuple[str, int | None]:
    """The text of a PDF or an HTML page, and the number of pages of a PDF.

    Raises a subclass of InvalidDocument, NoText if the text is blank.
    """
    # Each library takes tens of milliseconds to import, so only one is imported.
    if media_type == PDF:
        from kinds.document.reading.pdf_text import pdf_text

        text, pages = pdf_text(data, max_characters=max_characters)
        advice = f"None of the PDF's {pages} pages has text, so it is a scan. Run text recognition (OCR) on it."
    else:
        from kinds.document.reading.html_text import html_text

        text, pages = clean(html_text(data)), None
        advice = "The page has no text without its scripts. Save the rendered page from a browser."
    if is_blank(text):
        raise NoText(advice)
    if len(text) > max_characters:
        raise DocumentTooLarge(f"The document has more than {max_characters} characters. Split it.")
    return text, pages


def _limit_process(timeout_seconds: float, memory_mb: int) -> None:
    """Limit memory and CPU time, and allow no file. The parent normally ends this process before the CPU time."""
    seconds = math.ceil(timeout_seconds) + 1
    _set_limit(resource.RLIMIT_CPU, seconds)
    _set_limit(resource.RLIMIT_CORE, 0)
    _set_limit(resource.RLIMIT_FSIZE, 0)
    if sys.platform == "linux":  # other kernels reject or ignore it
        _set_limit(resource.RLIMIT_AS, memory_mb * 1024 * 1024)


def _set_limit(kind: int, value: int) -> None:
    _, ceiling = resource.getrlimit(kind)
    if ceiling != resource.RLIM_INFINITY:
        value = min(value, ceiling)
    resource.setrlimit(kind, (value, value))


def _write_result(body: bytes = b"", **header: object) -> None:
    out = sys.stdout.buffer
    out.write(json.dumps({**header, "size": len(body)}).encode() + b"\n" + body)
    out.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
    os._exit(0)  # skips PDFium's clean-up
