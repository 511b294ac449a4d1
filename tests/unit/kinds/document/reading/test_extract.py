"""The parser process (kinds.document.reading.extract)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from core.errors import DocumentTooLarge, NoText
from kinds.document.reading import extract as module
from kinds.document.reading.extract import extract
from kinds.document.reading.sniff import HTML, PDF
from tests.support import pdfs

ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}


def run(
    data: bytes, media_type: str = HTML, *, characters: int = 100, memory: int = 512
) -> tuple[dict[str, Any], str]:
    """The header and the text in the output."""
    command = [sys.executable, "-m", module.__name__, media_type, str(characters), "5.5", str(memory)]
    done = subprocess.run(command, input=data, capture_output=True, check=True, env=ENVIRONMENT, timeout=60)
    assert done.stderr == b""
    header, _, body = done.stdout.partition(b"\n")
    return json.loads(header), body.decode()


def test_error() -> None:
    """The output for an invalid document has the name of the error and its message."""
    header, body = run(b"<p>" + b"x" * 101)
    assert header == {
        "ok": False,
        "error": "DocumentTooLarge",
        "message": "The document has more than 100 characters. Split it.",
        "size": 0,
    }
    assert body == ""


@pytest.mark.parametrize("data", [bytes(64 * 1024 * 1024), b"<html>" + b"<p>x" * 1_000_000])
def test_memory(data: bytes) -> None:
    """Running out of memory is an error in the output, if Python or the HTML parser notices it."""
    header, _ = run(data, memory=64)
    assert header["error"] == "TooComplex"


def test_limits_of_the_process() -> None:
    """The process limits its memory and CPU time, writes no core dump, and cannot raise the limits."""
    code = (
        "import json, resource as r; from kinds.document.reading.extract import _limit_process;"
        "_limit_process(1.2, 64);"
        "print(json.dumps([r.getrlimit(kind) for kind in (r.RLIMIT_AS, r.RLIMIT_CPU, r.RLIMIT_CORE)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, env=ENVIRONMENT, timeout=60
    )
    assert json.loads(done.stdout) == [[64 * 1024 * 1024] * 2, [3, 3], [0, 0]]


def test_only_one_library_is_loaded() -> None:
    """HTML does not import PDFium, PDF does not import the HTML parser, and neither imports boto3."""
    code = (
        "import json, sys; from kinds.document.reading.extract import extract;"
        "extract(b'<p>x', media_type='text/html', max_characters=9); print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, env=ENVIRONMENT, timeout=60
    )
    roots = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert "selectolax" in roots
    assert not roots & {"pypdfium2", "boto3", "botocore", "asyncio"}


@pytest.mark.parametrize(
    ("data", "media_type", "advice"),
    [
        (pdfs.write(pdfs.document(b"", b"0 0 9 9 re f")), PDF, "None of the PDF's 2 pages has text.*OCR"),
        (pdfs.write(pdfs.document(pdfs.show(" "))), PDF, "OCR"),
        (b"<html><body><noscript>Enable JavaScript</noscript><script>app()</script>", HTML, "without its scripts"),
        (b"<html><title>Title</title><body>&nbsp;&#8203;", HTML, "no text"),
    ],
)
def test_no_text(data: bytes, media_type: str, advice: str) -> None:
    """A scan, and a page with scripts only, raise NoText."""
    with pytest.raises(NoText, match=advice):
        extract(data, media_type=media_type, max_characters=100)


def test_limit_is_inclusive() -> None:
    """A text of exactly the limit is allowed."""
    assert extract(b"<p>12345", media_type=HTML, max_characters=5) == ("12345", None)
    with pytest.raises(DocumentTooLarge):
        extract(b"<p>123456", media_type=HTML, max_characters=5)
    two = pdfs.write(pdfs.document(pdfs.show("12"), pdfs.show("34")))
    assert extract(two, media_type=PDF, max_characters=6) == ("12\n\n34", 2)
    with pytest.raises(DocumentTooLarge):
        extract(two, media_type=PDF, max_characters=5)
