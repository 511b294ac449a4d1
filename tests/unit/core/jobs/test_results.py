"""core.jobs.results"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import events
from core.aws.blobs import Blobs
from core.jobs.results import MAX_RESULT_BYTES, keep_large
from tests.unit.core.memory_blobs import MemoryBlobs
from tests.unit.examples import job

SUBJECT = job()
KEY = f"results/ana/{SUBJECT.job_id}/result.json"


def of_size(size: int, letter: str = "x") -> dict[str, str]:
    """A result that has so many bytes as JSON, most of them this letter, as many as fit."""
    length = len(events.encode({"t": letter})) - len(events.encode({"t": ""}))
    count, rest = divmod(size - len(events.encode({"t": ""})), length)
    return {"t": letter * count + "x" * rest}


def test_the_limit() -> None:
    """The limit is the size of a WebSocket's frame."""
    assert MAX_RESULT_BYTES == 32_768


@pytest.mark.parametrize("letter", ["x", "ñ", "👩", '"', "\x00"], ids=ascii)
@pytest.mark.parametrize("excess", [-1, 0, 1])
def test_at_the_limit(letter: str, excess: int) -> None:
    """What counts is the JSON as it would be sent, escapes and all, and the last byte that fits fits."""
    blobs, result = MemoryBlobs(), of_size(MAX_RESULT_BYTES + excess, letter)
    assert len(events.encode(result).encode()) == MAX_RESULT_BYTES + excess
    assert keep_large(blobs, SUBJECT, result) == (KEY if excess > 0 else None)
    assert len(blobs.objects) == (1 if excess > 0 else 0)


@given(st.lists(st.text(), max_size=4), st.integers(0, 20_000))
def test_any_result(texts: list[str], size: int) -> None:
    """A result is either small, and stored nowhere, or comes back whole from where it is kept."""
    blobs = MemoryBlobs()
    result: dict[str, Any] = {"texts": texts, "scores": [0.1] * size}
    key = keep_large(blobs, SUBJECT, result)
    assert (key is None) == (len(events.encode(result)) <= MAX_RESULT_BYTES)
    if key is not None:
        assert json.loads(blobs.objects[key]) == result


def test_a_large_result_is_the_owners(blobs: Blobs, s3: Any, bucket: str) -> None:
    """A large result is JSON, under its owner and its job; kept again it is the same object."""
    result = of_size(MAX_RESULT_BYTES + 1)
    assert keep_large(blobs, SUBJECT, result) == keep_large(blobs, SUBJECT, result) == KEY
    assert list(blobs.keys("")) == [KEY]
    assert s3.head_object(Bucket=bucket, Key=KEY)["ContentType"] == "application/json"
    assert json.loads(blobs.get(KEY)) == result


def test_what_is_no_json(blobs: Blobs) -> None:
    """A result that JSON does not know is refused here, and not when somebody reads it."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        keep_large(blobs, SUBJECT, {"score": float("nan")})
