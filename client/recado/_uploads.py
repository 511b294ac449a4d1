"""A file on its way to where POST /uploads says."""

from __future__ import annotations

import io
import mimetypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from recado._calls import Calls
from recado._io import Request
from recado.models import Upload

Source = str | os.PathLike[str] | bytes | BinaryIO
"""A path, the bytes themselves, or a binary file that can be sought in."""

OnProgress = Callable[[int, int], object]
CHUNK_BYTES = 64 * 1024
SILENCE_SECONDS = 120.0
OCTETS = "application/octet-stream"
TYPES = {".md": "text/markdown", ".txt": "text/plain", ".html": "text/html", ".pdf": "application/pdf"}
"""Those that matter most; what a machine's own list of types says differs from machine to machine."""


@dataclass(frozen=True, slots=True)
class Content:
    """`size` in bytes, from `start` on."""

    file: BinaryIO
    name: str
    media_type: str
    start: int
    size: int

    def chunks(self, on_progress: OnProgress | None = None) -> Iterator[bytes]:
        """All of it from the beginning, whatever was read before: an upload may have to begin again."""
        self.file.seek(self.start)
        sent = 0
        while sent < self.size and (chunk := self.file.read(min(CHUNK_BYTES, self.size - sent))):
            yield chunk
            sent += len(chunk)
            if on_progress:
                on_progress(sent, self.size)


@contextmanager
def opened(source: Source, filename: str | None, media_type: str | None) -> Iterator[Content]:
    if isinstance(source, (str, os.PathLike)):
        with Path(source).open("rb") as file:
            yield _content(file, filename or Path(source).name, media_type)
    elif isinstance(source, (bytes, bytearray)):
        yield _content(io.BytesIO(source), filename or "file", media_type)
    else:
        name = getattr(source, "name", None)
        yield _content(source, filename or (Path(name).name if isinstance(name, str) else "file"), media_type)


async def put(calls: Calls, slot: Upload, content: Content, on_progress: OnProgress | None) -> None:
    """One PUT, begun again where it breaks. The URL is a permission of its own, so the key is not sent along."""
    headers = {**slot.headers, "Content-Length": str(content.size)}
    request = Request("PUT", slot.url, headers, lambda: content.chunks(on_progress), SILENCE_SECONDS)
    # The place can be filled once. If it is full when we come again, it was us whose answer was lost.
    await calls.call(request, gone=412)


def _content(file: BinaryIO, name: str, media_type: str | None) -> Content:
    start = file.tell()
    size = file.seek(0, os.SEEK_END) - start
    return Content(file, name, media_type or guessed(name), start, size)


def guessed(name: str) -> str:
    """The media type by the name's ending."""
    ending = Path(name).suffix.lower()
    return TYPES.get(ending) or mimetypes.types_map.get(ending) or OCTETS
