"""Objects in memory, for tests that do not need S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO

from core.aws.blobs import Blobs
from core.errors import SourceNotFound


class MemoryBlobs(Blobs):
    """A fake of `Blobs`. `reads`: the keys that were read, in order."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.reads: list[str] = []

    def put(self, key: str, data: bytes | IO[bytes], *, content_type: str = "") -> str:
        self.objects[key] = bytes(data) if isinstance(data, bytes | bytearray) else data.read()
        return '"etag"'

    def get(self, key: str, *, etag: str | None = None, max_bytes: int | None = None) -> bytes:
        self.reads.append(key)
        if key not in self.objects:
            raise SourceNotFound(key)
        return self.objects[key]

    def download(self, key: str, path: Path, *, etag: str | None = None) -> int:
        return path.write_bytes(self.get(key, etag=etag))

    def stream(self, key: str, *, etag: str | None = None) -> Iterator[bytes]:
        yield self.get(key, etag=etag)

    def upload(self, key: str, path: Path, *, content_type: str = "") -> None:
        self.objects[key] = path.read_bytes()

    def head(self, key: str) -> tuple[int, str] | None:
        return (len(self.objects[key]), '"etag"') if key in self.objects else None

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        yield from ((key, len(self.objects[key])) for key in sorted(self.objects) if key.startswith(prefix))

    def copy(self, source: str, target: str) -> bool:
        if source in self.objects:
            self.objects[target] = self.objects[source]
        return source in self.objects

    def delete(self, keys: list[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)
