"""Large results of jobs (core.jobs.results)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import events
from core.aws.blobs import Blobs
from core.jobs.results import MAX_RESULT_BYTES, store_if_large
from tests.unit.core.memory_blobs import MemoryBlobs
from tests.unit.examples import job

SUBJECT = job()
KEY = f"results/ana/{SUBJECT.job_id}/result.json"


def of_size(size: int, letter: str = "x") -> dict[str, str]:
    """A result with this size in bytes as JSON, of as many of these letters as possible."""
    length = len(events.encode({"t": letter})) - len(events.encode({"t": ""}))
    count, rest = divmod(size - len(events.encode({"t": ""})), length)
    return {"t": letter * count + "x" * rest}


@pytest.mark.parametrize("letter", ["x", "ñ", "👩", '"', "\x00"], ids=ascii)
@pytest.mark.parametrize("excess", [-1, 0, 1])
def test_at_limit(letter: str, excess: int) -> None:
    """The size is that of the JSON with escapes. A result of exactly the limit is small."""
    blobs, result = MemoryBlobs(), of_size(MAX_RESULT_BYTES + excess, letter)
    assert len(events.encode(result).encode()) == MAX_RESULT_BYTES + excess
    assert store_if_large(blobs, SUBJECT, result) == (KEY if excess > 0 else None)
    assert len(blobs.objects) == (1 if excess > 0 else 0)


@given(st.lists(st.text(), max_size=4), st.integers(0, 20_000))
def test_any_result(texts: list[str], size: int) -> None:
    """A result is small and not stored, or its object contains it unchanged."""
    blobs = MemoryBlobs()
    result: dict[str, Any] = {"texts": texts, "scores": [0.1] * size}
    key = store_if_large(blobs, SUBJECT, result)
    assert (key is None) == (len(events.encode(result)) <= MAX_RESULT_BYTES)
    if key is not None:
        assert json.loads(blobs.objects[key]) == result


def test_object_of_large_result(blobs: Blobs, s3: Any, bucket: str) -> None:
    """A large result is a JSON object under its owner and job. Storing it again overwrites it."""
    result = of_size(MAX_RESULT_BYTES + 1)
    assert store_if_large(blobs, SUBJECT, result) == store_if_large(blobs, SUBJECT, result) == KEY
    assert list(blobs.keys("")) == [KEY]
    assert s3.head_object(Bucket=bucket, Key=KEY)["ContentType"] == "application/json"
    assert json.loads(blobs.get(KEY)) == result


def test_invalid_json(blobs: Blobs) -> None:
    """A result that is not valid JSON is refused."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        store_if_large(blobs, SUBJECT, {"score": float("nan")})
