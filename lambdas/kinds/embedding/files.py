"""The files of a bulk embedding in its work folder: its lines, the texts of each batch, and what came of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.aws.blobs import Blobs, work_folder
from core.errors import SourceNotFound
from kinds.document.index.embedding import Vector
from kinds.document.index.vectors import pack, unpack
from kinds.embedding.lines import Line, LineError, Lines

NDJSON = "application/x-ndjson"


@dataclass(slots=True)
class Outcome:
    """What came of a batch so far: its first `done` texts have a vector each, or an error.

    `errors`: by the text's place in the batch. `input_tokens`: of all vectors.
    """

    vectors: list[Vector] = field(default_factory=list)
    errors: dict[int, LineError] = field(default_factory=dict)
    input_tokens: int = 0

    @property
    def done(self) -> int:
        return len(self.vectors) + len(self.errors)

    def dump(self) -> bytes:
        """A line of JSON, and then the vectors as float32."""
        errors = {place: [error.code, error.message] for place, error in self.errors.items()}
        return (
            json.dumps({"input_tokens": self.input_tokens, "errors": errors}).encode() + b"\n" + pack(self.vectors)
        )

    @classmethod
    def load(cls, data: bytes, dimensions: int) -> Outcome:
        head, _, rows = data.partition(b"\n")
        facts = json.loads(head)
        errors = {int(place): LineError(*error) for place, error in facts["errors"].items()}
        return cls(unpack(rows, dimensions), errors, facts["input_tokens"])


def write_plan(blobs: Blobs, job_id: str, found: Lines, batches: Sequence[int]) -> None:
    first = 0
    for batch, size in enumerate(batches):
        _put_lines(blobs, _texts_key(job_id, batch), found.texts[first : first + size])
        first += size
    _put_lines(blobs, _lines_key(job_id), [_as_list(line) for line in found.lines])


def read_texts(blobs: Blobs, job_id: str, batch: int) -> list[str]:
    return list(_get_lines(blobs, _texts_key(job_id, batch)))


def read_lines(blobs: Blobs, job_id: str) -> list[Line]:
    return [
        Line(number, line_id, text, LineError(*error) if error else None)
        for number, line_id, text, error in _get_lines(blobs, _lines_key(job_id))
    ]


def read_outcome(blobs: Blobs, job_id: str, batch: int, *, dimensions: int) -> Outcome:
    """What came of the batch in earlier attempts."""
    try:
        return Outcome.load(blobs.get(_outcome_key(job_id, batch)), dimensions)
    except SourceNotFound:
        return Outcome()


def write_outcome(blobs: Blobs, job_id: str, batch: int, outcome: Outcome) -> None:
    blobs.put(_outcome_key(job_id, batch), outcome.dump())


def _as_list(line: Line) -> list[Any]:
    error = [line.error.code, line.error.message] if line.error else None
    return [line.number, line.id, line.text, error]


def _lines_key(job_id: str) -> str:
    return f"{work_folder(job_id)}lines.jsonl"


def _texts_key(job_id: str, batch: int) -> str:
    return f"{work_folder(job_id)}texts/{batch:04d}.jsonl"


def _outcome_key(job_id: str, batch: int) -> str:
    return f"{work_folder(job_id)}vectors/{batch:04d}"


def _put_lines(blobs: Blobs, key: str, values: Sequence[Any]) -> None:
    blobs.put(key, "".join(json.dumps(value) + "\n" for value in values).encode(), content_type=NDJSON)


def _get_lines(blobs: Blobs, key: str) -> Iterator[Any]:
    return map(json.loads, blobs.get(key).splitlines())
