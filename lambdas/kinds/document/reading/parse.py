"""Extracts the whole text of a document, or raises an error with the reason.

A child process parses PDF and HTML. It has limits of time and memory, no credentials, no sockets, and writes to a
pipe only, so a hostile document fails its own job and nothing else.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, cast

from core.errors import DocumentTooLarge, InvalidDocument, ParseTimeout, RecadoError, TooComplex, by_name
from kinds.document.reading import sandbox
from kinds.document.reading.sniff import HTML, PDF, sniff
from kinds.document.reading.text import clean, decode

# No user and site directories, no working directory, no bytecode files: modules come from PYTHONPATH only.
CHILD = (sys.executable, "-P", "-S", "-s", "-B", "-m", "kinds.document.reading.extract")
# Lambda's Python finds its own shared library by LD_LIBRARY_PATH.
_INHERITED_VARIABLES = ("PATH", "LD_LIBRARY_PATH")
_CHUNK = 64 * 1024
_HEADER_BYTES = 4096
_TOO_COMPLEX = (
    "Reading the document took more memory than is allowed, or broke the reader. "
    "Split it, or export it again as a simpler file."
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes of the document, characters of its text, wall-clock seconds, MB of the child's address space."""

    max_bytes: int
    max_characters: int
    timeout_seconds: float
    memory_mb: int


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """Text that is not blank, the detected media type, and the number of pages of a PDF."""

    text: str
    media_type: str
    pages: int | None


def parse(data: bytes, *, limits: Limits) -> ParsedDocument:
    """Detect the media type of `data` and extract its text.

    Raises a subclass of InvalidDocument if the document is invalid, and RecadoError if the parser cannot run.
    """
    if len(data) > limits.max_bytes:
        raise DocumentTooLarge(f"The document has {len(data)} bytes; the limit is {limits.max_bytes}.")
    media_type = sniff(data)
    if media_type in (PDF, HTML):
        return _parse_in_child(data, media_type, limits)
    text = clean(decode(data))
    if len(text) > limits.max_characters:
        raise DocumentTooLarge(f"The text has more than {limits.max_characters} characters. Split it.")
    return ParsedDocument(text=text, media_type=media_type, pages=None)


def _parse_in_child(data: bytes, media_type: str, limits: Limits) -> ParsedDocument:
    output, status = _run(data, media_type, limits)
    if status > 0:
        raise RecadoError(f"the document parser failed to run: exit status {status}")
    if status < 0:
        raise TooComplex(_TOO_COMPLEX)
    text, pages = _read_result(output)
    return ParsedDocument(text=text, media_type=media_type, pages=pages)


def _run(data: bytes, media_type: str, limits: Limits) -> tuple[bytes, int]:
    """The child's output and exit status. The child's process group is killed in any case."""
    sandbox.hide_process()
    deadline = time.monotonic() + limits.timeout_seconds
    arguments = (limits.max_characters, limits.timeout_seconds, limits.memory_mb)
    with subprocess.Popen(
        [*CHILD, media_type, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        env=_environment(),
        cwd="/",
        start_new_session=True,
    ) as process:
        try:
            output = _exchange(process, data, limit=_output_limit(limits), deadline=deadline)
            return output, process.wait(_seconds_left(deadline))
        except (TimeoutError, subprocess.TimeoutExpired):
            raise ParseTimeout(
                f"The document could not be read within {limits.timeout_seconds:g} seconds. Split or simplify it."
            ) from None
        finally:
            _kill_group(process)


def _environment() -> dict[str, str]:
    """Where modules and libraries are. No credentials and no settings."""
    inherited = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    return {**inherited, "LANG": "C.UTF-8", "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}


def _output_limit(limits: Limits) -> int:
    return _HEADER_BYTES + 4 * limits.max_characters  # a character is at most four bytes of UTF-8


def _exchange(process: subprocess.Popen[bytes], data: bytes, *, limit: int, deadline: float) -> bytes:
    """Write to and read from the child at the same time, since either pipe can fill up first."""
    stdin, stdout = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
    unsent, output = memoryview(data), bytearray()
    os.set_blocking(stdin.fileno(), False)
    with selectors.DefaultSelector() as ready:
        ready.register(stdin, selectors.EVENT_WRITE)
        ready.register(stdout, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select(_seconds_left(deadline)):
                if key.fileobj is stdin:
                    unsent = unsent[_send(key.fd, unsent) :]
                    if not unsent:
                        ready.unregister(stdin)
                        stdin.close()
                elif chunk := os.read(key.fd, _CHUNK):
                    output += chunk
                else:
                    return bytes(output)
            if len(output) > limit:
                raise TooComplex(_TOO_COMPLEX)


def _send(fd: int, unsent: memoryview) -> int:
    try:
        return os.write(fd, unsent[:_CHUNK])
    except BrokenPipeError:
        return len(unsent)  # the child reads no more: its output or its exit status tells why


def _seconds_left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS answers EPERM for a group of zombies
        os.killpg(process.pid, signal.SIGKILL)


def _read_result(output: bytes) -> tuple[str, int | None]:
    """The text and the pages of a result. Raises the error in it, or TooComplex if the result is malformed."""
    header, _, body = output.partition(b"\n")
    try:
        result = json.loads(header)
        if result["ok"] and result["size"] == len(body):
            return body.decode(), result["pages"]
        failure, message = by_name(result["error"]), str(result["message"])
    except (ValueError, LookupError, TypeError, RecursionError):
        raise TooComplex(_TOO_COMPLEX) from None
    if failure is None or not issubclass(failure, InvalidDocument):
        raise TooComplex(_TOO_COMPLEX)
    raise failure(message)
