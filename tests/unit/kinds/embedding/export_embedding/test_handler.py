"""The last stage of a bulk embedding (kinds.embedding.export_embedding)."""

from __future__ import annotations

import json
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.aws.blobs import Blobs
from core.errors import CountMismatch, JobClosed
from core.jobs import Job, JobStore, cancel
from kinds.document.index.vectors import pack
from kinds.embedding import lines
from kinds.embedding.export import _numbers
from kinds.embedding.export_embedding.handler import handler
from kinds.embedding.files import Outcome, write_outcome, write_plan
from kinds.embedding.lines import LineError
from kinds.embedding.models import Embedding
from tests.support.parquet import read
from tests.unit.kinds.embedding.model import EXECUTION, MODEL, submitted

LINES = b'{"id": "x", "text": "a"}\n{\n"b"\n{"id": "y", "text": "a"}\n"c"\n'


@pytest.fixture
def subject(store: JobStore, blobs: Blobs) -> Job:
    """A job of three texts in two batches, the second of which the model refused."""
    drafted = submitted(store, blobs, LINES)
    write_plan(blobs, drafted.job_id, lines.read(LINES), [2, 1])
    write_outcome(blobs, drafted.job_id, 0, Outcome([[0.5, -0.25]], {1: LineError("too_long", "Too long.")}, 7))
    write_outcome(blobs, drafted.job_id, 1, Outcome([[1.0, 0.1]], {}, 5))
    return drafted


def run(subject: Job) -> dict[str, Any]:
    return handler({"job_id": subject.job_id, "execution": EXECUTION, "batches": 2}, None)


def rows(blobs: Blobs, subject: Job, name: str) -> list[Any]:
    return [json.loads(line) for line in blobs.get(f"results/ana/{subject.job_id}/{name}").splitlines()]


def test_export(subject: Job, store: JobStore, blobs: Blobs) -> None:
    """Each line is in both files of vectors, in order and with its id, or in that of errors."""
    result = Embedding.model_validate(run(subject))
    tenth = pytest.approx(0.1)
    assert read(blobs.get(f"results/ana/{subject.job_id}/embeddings.parquet")) == [
        (1, "x", [0.5, -0.25]),
        (4, "y", [0.5, -0.25]),
        (5, None, [1.0, tenth]),
    ]
    assert rows(blobs, subject, "embeddings.jsonl") == [
        {"line": 1, "id": "x", "vector": [0.5, -0.25]},
        {"line": 4, "id": "y", "vector": [0.5, -0.25]},
        {"line": 5, "vector": [1, tenth]},
    ]
    first, second = rows(blobs, subject, "errors.jsonl")
    assert (first["line"], first["code"], set(first)) == (2, "invalid_line", {"line", "code", "message"})
    assert second == {"line": 3, "code": "too_long", "message": "Too long."}
    assert result.model_dump(exclude={"files"}) == {
        "lines": 5,
        "embedded": 3,
        "duplicates": 1,
        "errors": 2,
        "model": MODEL,
        "dimensions": 2,
        "input_tokens": 12,
        "cost_usd": 0.00000024,
    }
    event = list(store.log.read(subject.job_id))[-1].payload
    assert (event["event"], event["embedded"], event["errors"]) == ("embedding.embedded", 3, 2)


def test_again(subject: Job, store: JobStore) -> None:
    """A Task that runs again returns the same result and logs its step once."""
    assert run(subject) == run(subject)
    names = [event.name for event in store.log.read(subject.job_id)]
    assert names.count("embedding.embedded") == 1


def test_missing_vectors(subject: Job, blobs: Blobs) -> None:
    """A job with fewer vectors than texts fails, and writes no file."""
    write_outcome(blobs, subject.job_id, 1, Outcome())
    with pytest.raises(CountMismatch, match="3 texts, but the model answered for 2"):
        run(subject)
    assert list(blobs.keys("results/")) == []


def test_canceled(subject: Job, store: JobStore, blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is left of a job that is canceled while they are written."""
    put = Blobs.put

    def put_and_cancel(self: Blobs, key: str, *args: Any, **options: Any) -> str:
        store.apply(subject.job_id, cancel)
        return put(self, key, *args, **options)

    monkeypatch.setattr(Blobs, "put", put_and_cancel)
    with pytest.raises(JobClosed):
        run(subject)
    assert [*blobs.keys("results/"), *blobs.keys("work/")] == []


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=9))
def test_numbers(vector: list[float]) -> None:
    """JSON has numbers that are the same float32, in at most nine digits."""
    read_again = json.loads(f"[{_numbers(pack([vector]), len(vector))}]")
    assert list(array("f", read_again)) == vector
