"""A file on its way to where POST /uploads says."""

from __future__ import annotations

import io
import mimetypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from recado._calls import Calls
from recado._io import Request
from recado.errors import BadAnswer, RecadoError
from recado.models import MultipartUpload, Upload, UploadPart

Source = str | os.PathLike[str] | bytes | BinaryIO
"""A path, the bytes themselves, or a binary file that can be sought in."""

OnProgress = Callable[[int, int], object]
PARTS_FROM_BYTES = 16 * 1024 * 1024
"""From this size on a file goes in parts: below, one PUT is as fast, and one call instead of three."""

PARTS_AT_ONCE = 4
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

    lock: threading.Lock = field(default_factory=threading.Lock, compare=False)

    def chunks(self, start: int, size: int, on_sent: Callable[[int], object]) -> Iterator[bytes]:
        """`size` bytes from `start` on, whoever reads elsewhere meanwhile; `on_sent` hears how many are done."""
        sent = 0
        while sent < size and (chunk := self._read(start + sent, min(CHUNK_BYTES, size - sent))):
            yield chunk
            sent += len(chunk)
            on_sent(sent)

    def _read(self, start: int, most: int) -> bytes:
        with self.lock:
            self.file.seek(self.start + start)
            return self.file.read(most)


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

    def tell(sent: int) -> None:
        if on_progress:
            on_progress(sent, content.size)

    headers = {**slot.headers, "Content-Length": str(content.size)}
    request = Request("PUT", slot.url, headers, lambda: content.chunks(0, content.size, tell), SILENCE_SECONDS)
    # The place can be filled once. If it is full when we come again, it was us whose answer was lost.
    await calls.call(request, gone=412)


async def put_parts(
    calls: Calls, place: MultipartUpload, content: Content, on_progress: OnProgress | None
) -> None:
    """Several at a time, each begun again by itself where it breaks. What fails for good leaves nothing there."""
    path, progress = f"/uploads/{quote(place.upload_id, safe='')}", _Progress(content.size, on_progress)
    works = [partial(_put_part, calls, place, part, content, progress) for part in place.parts]
    try:
        etags = await calls.io.together(works, at_once=PARTS_AT_ONCE)
        sent = [{"number": part.number, "etag": etag} for part, etag in zip(place.parts, etags, strict=True)]
        await calls.json("POST", f"{path}/complete", body={"parts": sent})
    except GeneratorExit:  # nothing can be awaited any more
        raise
    except BaseException:
        with suppress(RecadoError):
            await calls.call(calls.request("DELETE", path), retries=0)
        raise


async def _put_part(
    calls: Calls, place: MultipartUpload, part: UploadPart, content: Content, progress: _Progress
) -> str:
    """Returns the part's ETag."""
    start, tell = (part.number - 1) * place.part_size, partial(progress.tell, part.number)
    headers = {"Content-Length": str(part.size)}
    request = Request("PUT", part.url, headers, lambda: content.chunks(start, part.size, tell), SILENCE_SECONDS)
    answer = await calls.call(request)
    etag = answer.headers.get("etag")
    if not etag:
        raise BadAnswer("a part was taken without an ETag")
    return etag


class _Progress:
    """How far the parts are together. One that begins again takes nothing back, and no two tell at once."""

    def __init__(self, total: int, on_progress: OnProgress | None) -> None:
        self._total, self._on_progress = total, on_progress
        self._sent: dict[int, int] = {}
        self._told = 0
        self._lock = threading.Lock()

    def tell(self, number: int, sent: int) -> None:
        with self._lock:
            self._sent[number] = sent
            together = sum(self._sent.values())
            if self._on_progress and together > self._told:
                self._told = together
                self._on_progress(together, self._total)


def _content(file: BinaryIO, name: str, media_type: str | None) -> Content:
    start = file.tell()
    size = file.seek(0, os.SEEK_END) - start
    return Content(file, name, media_type or guessed(name), start, size)


def guessed(name: str) -> str:
    """The media type by the name's ending."""
    ending = Path(name).suffix.lower()
    return TYPES.get(ending) or mimetypes.types_map.get(ending) or OCTETS
