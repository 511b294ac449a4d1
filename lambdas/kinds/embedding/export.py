"""Writes the result files of a bulk embedding to a folder. Vectors stay on the disk: they may be 0.8 GB."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kinds.document.index.vectors import pack, unpack
from kinds.embedding.files import Outcome
from kinds.embedding.lines import Line, LineError
from kinds.embedding.models import EmbeddingFiles
from kinds.embedding.parquet import ParquetFile

_NO_ROW = -1


class Vectors:
    """The vectors and errors of all texts, in a file at `path`. Texts are numbered in the order of the batches."""

    def __init__(self, path: Path, dimensions: int) -> None:
        self.dimensions, self.input_tokens = dimensions, 0
        self._file = path.open("w+b")
        self._width = 4 * dimensions
        self._rows = array("q")
        self._errors: dict[int, LineError] = {}
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def texts(self) -> int:
        return len(self._rows)

    def add(self, outcome: Outcome) -> None:
        """Add the next batch."""
        self._file.write(pack(outcome.vectors))
        self.input_tokens += outcome.input_tokens
        for place in range(outcome.done):
            if place in outcome.errors:
                self._errors[self.texts] = outcome.errors[place]
                self._rows.append(_NO_ROW)
            else:
                self._rows.append(self._count)
                self._count += 1

    def has(self, text: int) -> bool:
        return self._rows[text] != _NO_ROW

    def error(self, text: int) -> LineError:
        return self._errors[text]

    def packed(self, text: int) -> bytes:
        """The vector as little-endian float32."""
        self._file.seek(self._rows[text] * self._width)
        return self._file.read(self._width)


def write_files(lines: Sequence[Line], vectors: Vectors, folder: Path) -> None:
    """Write each line to both files of vectors, or to that of errors."""
    names = EmbeddingFiles()
    with ExitStack() as stack:
        parquet = stack.enter_context(ParquetFile(folder / names.parquet, dimensions=vectors.dimensions))
        jsonl = stack.enter_context((folder / names.jsonl).open("w", encoding="utf-8"))
        errors = stack.enter_context((folder / names.errors).open("w", encoding="utf-8"))
        for line in lines:
            if line.text is not None and vectors.has(line.text):
                packed = vectors.packed(line.text)
                parquet.add(line.number, line.id, packed)
                jsonl.write(_line(line)[:-1] + f', "vector": [{_numbers(packed, vectors.dimensions)}]}}\n')
            else:
                error = line.error or vectors.error(line.text or 0)
                errors.write(_line(line, code=error.code, message=error.message) + "\n")


def _line(line: Line, **more: Any) -> str:
    return json.dumps({"line": line.number, **({} if line.id is None else {"id": line.id}), **more})


def _numbers(packed: bytes, dimensions: int) -> str:
    """Nine digits tell any two float32 apart."""
    (row,) = unpack(packed, dimensions)
    return ", ".join([f"{x:.9g}" for x in row])
