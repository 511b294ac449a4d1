"""Send a file to the URLs that POST /uploads returns."""

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

from recado._http import HttpApi
from recado._io import Request
from recado.errors import BadAnswer, RecadoError
from recado.models import MultipartUpload, Upload, UploadPart

Source = str | os.PathLike[str] | bytes | BinaryIO
"""A path, the bytes, or a seekable binary file."""

OnProgress = Callable[[int, int], object]
MULTIPART_THRESHOLD_BYTES = 16 * 1024 * 1024
"""Larger files are uploaded in parts. For smaller ones a single PUT is as fast and needs fewer requests."""

PART_CONCURRENCY = 4
CHUNK_BYTES = 64 * 1024
TIMEOUT_SECONDS = 120.0
DEFAULT_KIND = "document"
DEFAULT_MEDIA_TYPE = "application/octet-stream"
MEDIA_TYPES = {
    ".csv": "text/csv",
    ".md": "text/markdown",
    ".txt": "text/plain",
    ".html": "text/html",
    ".pdf": "application/pdf",
}
"""The most important types. The list of the operating system differs between machines."""


@dataclass(frozen=True, slots=True)
class Content:
    """The file from position `start` on; `size` in bytes from there."""

    file: BinaryIO
    name: str
    media_type: str
    start: int
    size: int

    lock: threading.Lock = field(default_factory=threading.Lock, compare=False)

    def chunks(self, start: int, size: int, on_sent: Callable[[int], object]) -> Iterator[bytes]:
        """`size` bytes from `start` on. Thread-safe. `on_sent` is called with the number of bytes so far."""
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
def open_content(source: Source, filename: str | None, media_type: str | None) -> Iterator[Content]:
    if isinstance(source, (str, os.PathLike)):
        with Path(source).open("rb") as file:
            yield _content(file, filename or Path(source).name, media_type)
    elif isinstance(source, (bytes, bytearray)):
        yield _content(io.BytesIO(source), filename or "file", media_type)
    else:
        name = getattr(source, "name", None)
        yield _content(source, filename or (Path(name).name if isinstance(name, str) else "file"), media_type)


async def upload(api: HttpApi, content: Content, kind: str, on_progress: OnProgress | None) -> str:
    """Upload the file in one request or in parts; returns its `s3_key`. `kind`: of the job, which has a limit."""
    body = {"filename": content.name, "content_type": content.media_type, "size": content.size}
    if kind != DEFAULT_KIND:  # services before this field refuse it
        body["kind"] = kind
    if content.size < MULTIPART_THRESHOLD_BYTES:
        single = Upload.of(await api.json("POST", "/uploads", body=body))
        await _put(api, single, content, on_progress)
        return single.s3_key
    multipart = MultipartUpload.of(await api.json("POST", "/uploads", body={**body, "parts": True}))
    await _put_parts(api, multipart, content, on_progress)
    return multipart.s3_key


async def _put(api: HttpApi, target: Upload, content: Content, on_progress: OnProgress | None) -> None:
    """One PUT, with retries. The URL is presigned, so the key is not sent."""

    def report(sent: int) -> None:
        if on_progress:
            on_progress(sent, content.size)

    headers = {**target.headers, "Content-Length": str(content.size)}
    request = Request("PUT", target.url, headers, lambda: content.chunks(0, content.size, report), TIMEOUT_SECONDS)
    # The PUT is conditional (If-None-Match: *). If a retry gets 412, an earlier try was stored.
    await api.send(request, already_done_status=412)


async def _put_parts(
    api: HttpApi, target: MultipartUpload, content: Content, on_progress: OnProgress | None
) -> None:
    """Several parts at a time, each with its own retries. After a failure the upload is aborted."""
    path, progress = f"/uploads/{quote(target.upload_id, safe='')}", _UploadProgress(content.size, on_progress)
    puts = [partial(_put_part, api, target, part, content, progress) for part in target.parts]
    try:
        etags = await api.io.gather(puts, concurrency=PART_CONCURRENCY)
        parts = [{"number": part.number, "etag": etag} for part, etag in zip(target.parts, etags, strict=True)]
        await api.json("POST", f"{path}/complete", body={"parts": parts})
    except GeneratorExit:  # no await is possible any more
        raise
    except BaseException:
        with suppress(RecadoError):
            await api.send(api.build_request("DELETE", path), retries=0)
        raise


async def _put_part(
    api: HttpApi, target: MultipartUpload, part: UploadPart, content: Content, progress: _UploadProgress
) -> str:
    """Returns the part's ETag."""
    start, report = (part.number - 1) * target.part_size, partial(progress.report, part.number)
    headers = {"Content-Length": str(part.size)}
    request = Request("PUT", part.url, headers, lambda: content.chunks(start, part.size, report), TIMEOUT_SECONDS)
    response = await api.send(request)
    etag = response.headers.get("etag")
    if not etag:
        raise BadAnswer("The response to an uploaded part has no ETag.")
    return etag


class _UploadProgress:
    """The sum over all parts. It never decreases when a part is retried. Callbacks are called one at a time."""

    def __init__(self, total: int, on_progress: OnProgress | None) -> None:
        self._total, self._on_progress = total, on_progress
        self._sent: dict[int, int] = {}
        self._reported = 0
        self._lock = threading.Lock()

    def report(self, number: int, sent: int) -> None:
        with self._lock:
            self._sent[number] = sent
            total_sent = sum(self._sent.values())
            if self._on_progress and total_sent > self._reported:
                self._reported = total_sent
                self._on_progress(total_sent, self._total)


def _content(file: BinaryIO, name: str, media_type: str | None) -> Content:
    start = file.tell()
    size = file.seek(0, os.SEEK_END) - start
    return Content(file, name, media_type or guess_media_type(name), start, size)


def guess_media_type(name: str) -> str:
    """The media type by the file name's extension."""
    extension = Path(name).suffix.lower()
    return MEDIA_TYPES.get(extension) or mimetypes.types_map.get(extension) or DEFAULT_MEDIA_TYPE
