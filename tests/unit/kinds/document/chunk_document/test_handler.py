"""Cutting texts into batches of chunks (kinds.document.chunk_document)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.aws.blobs import Blobs
from core.dependencies import dependencies
from core.errors import EmptyDocument, JobClosed, SourceNotFound, Unavailable
from core.jobs import JobStore, begin, cancel
from kinds.document.chunk_document.handler import MAX_BATCHES, batch_key, batch_size, handler
from kinds.document.kind import DOCUMENT
from tests.simulated_cloud.calls import Calls
from tests.simulated_cloud.clock import Clock
from tests.unit.examples import job

EXECUTION = "arn:execution"
TEXT = "One sentence here. Another sentence there.\n\nA third, after a break. Ünd a föurth 👩‍🚀.\n\nThe end of it."


@pytest.fixture
def store(environment: dict[str, str], jobs_table: str, bucket: str) -> JobStore:
    return dependencies.jobs


@pytest.fixture
def event(store: JobStore, blobs: Blobs) -> dict[str, str]:
    """The input of the Task for a job whose text exists."""
    job_id = store.submit(DOCUMENT, job(at=time.time())).job.job_id
    store.apply(job_id, begin(DOCUMENT, stage="validate", lease=EXECUTION))
    blobs.put(f"work/{job_id}/text", TEXT.encode())
    return {"job_id": job_id, "text_key": f"work/{job_id}/text", "execution": EXECUTION}


def chunks(blobs: Blobs, job_id: str) -> list[list[dict[str, Any]]]:
    keys = blobs.keys(f"work/{job_id}/chunks/")
    return [[json.loads(line) for line in blobs.get(key).decode().splitlines()] for key in keys]


def test_batches(event: dict[str, str], blobs: Blobs) -> None:
    """Chunks have consecutive numbers and are passages of the text, in batches of the usual size."""
    answer = handler(event, None)
    batches = chunks(blobs, event["job_id"])
    flat = [chunk for batch in batches for chunk in batch]
    assert answer == {
        "chunks": len(flat),
        "batches": len(batches),
        "characters": len(TEXT),
        "last_batch": len(batches) - 1,
    }
    assert len(flat) >= 3
    assert [len(batch) for batch in batches[:-1]] == [2] * (len(batches) - 1)
    assert [chunk["chunk"] for chunk in flat] == list(range(len(flat)))
    assert all(chunk["text"] == TEXT[chunk["start"] : chunk["end"]] for chunk in flat)


def test_repeat(event: dict[str, str], store: JobStore, blobs: Blobs) -> None:
    """Repeating the stage gives the same chunks and result, and logs nothing."""
    first, written = handler(event, None), chunks(blobs, event["job_id"])
    log = [e.name for e in store.log.read(event["job_id"])]
    assert handler(event, None) == first
    assert chunks(blobs, event["job_id"]) == written
    assert [e.name for e in store.log.read(event["job_id"])] == log


def test_lost_response(event: dict[str, str], store: JobStore) -> None:
    """A step whose response was lost is not logged again."""
    calls = Calls(Clock())
    calls.fail("dynamodb", "TransactWriteItems", "InternalServerError", every=2, after=True)
    with calls.intercepted(), pytest.raises(Unavailable):
        handler(event, None)
    assert handler(event, None)["chunks"] > 0
    assert [e.name for e in store.log.read(event["job_id"])].count("document.chunked") == 1


def test_canceled(event: dict[str, str], store: JobStore, blobs: Blobs) -> None:
    """No work is done for a canceled job."""
    store.apply(event["job_id"], cancel)
    with pytest.raises(JobClosed):
        handler(event, None)
    assert chunks(blobs, event["job_id"]) == []


def test_blank(event: dict[str, str], blobs: Blobs) -> None:
    """A text of white space fails the job with `empty`."""
    blobs.put(event["text_key"], b" \n\t ")
    with pytest.raises(EmptyDocument):
        handler(event, None)


def test_missing_text(event: dict[str, str], blobs: Blobs) -> None:
    """A missing text fails the job."""
    blobs.delete([event["text_key"]])
    with pytest.raises(SourceNotFound):
        handler(event, None)


@given(st.integers(1, 10**7), st.integers(1, 64))
def test_batch_size(count: int, usual: int) -> None:
    """Batches have the usual size, or more if there would be too many."""
    size = batch_size(count, usual)
    batches = -(-count // size)
    assert batches <= MAX_BATCHES
    assert size == usual or (size > usual and -(-count // (size - 1)) > MAX_BATCHES)


def test_keys_sort_as_numbers() -> None:
    """The keys of batches sort as their numbers."""
    keys = [batch_key("job_1", number) for number in range(MAX_BATCHES)]
    assert keys == sorted(keys)
