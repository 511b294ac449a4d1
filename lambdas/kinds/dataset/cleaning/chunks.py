"""The records of a file in several files of about the same size, which are read side by side."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import IO, Self

CHUNK_BYTES = 64 * 1024 * 1024


class ChunkFiles:
    """`paths`: in the order of the records."""

    def __init__(self, folder: Path) -> None:
        self.paths: list[Path] = []
        self._folder, self._size = folder, 0
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file:
            self._file.close()

    def write(self, block: bytes) -> None:
        """Write whole records."""
        if self._file is None or self._size >= CHUNK_BYTES:
            self._next()
        if self._file:
            self._file.write(block)
        self._size += len(block)

    def _next(self) -> None:
        if self._file:
            self._file.close()
        self.paths.append(self._folder / f"{len(self.paths):04d}.csv")
        self._file, self._size = self.paths[-1].open("wb"), 0
