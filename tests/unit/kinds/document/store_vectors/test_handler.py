"""Checking the vectors of a document (kinds.document.store_vectors)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from core.dependencies import dependencies
from core.errors import CountMismatch, JobClosed, Superseded
from core.jobs import Job, JobStore, begin
from kinds.document.dependencies import document_dependencies
from kinds.document.index.vectors import version_of
from kinds.document.kind import DOCUMENT
from kinds.document.store_vectors.handler import handler
from tests.unit.examples import document, job

EXECUTION = "arn:execution"


@pytest.fixture
def store(environment: dict[str, str], jobs_table: str, bucket: str) -> JobStore:
    return dependencies.jobs


@pytest.fixture
def subject(store: JobStore) -> Job:
    """A job with three vectors."""
    job_id = store.submit(DOCUMENT, job(at=time.time())).job.job_id
    subject = store.apply(job_id, begin(DOCUMENT, stage="embed", lease=EXECUTION))
    put(subject, 0, 2)
    put(subject, 1, 1)
    return subject


def put(subject: Job, batch: int, count: int) -> None:
    version = version_of(subject)
    document_dependencies.vectors.put(version, batch, [[0.0, 1.0]] * count, [{}] * count)


def event(subject: Job, chunks: int = 3, execution: str = EXECUTION) -> dict[str, Any]:
    return {"job_id": subject.job_id, "chunks": chunks, "execution": execution}


def test_success(store: JobStore, subject: Job) -> None:
    """With as many vectors as chunks, the step is logged with the index."""
    assert handler(event(subject), None) == {"index": "model-2"}
    payload = json.loads(store.log.read(subject.job_id)[-1].body)
    assert (payload["event"], payload["vectors"], payload["index"]) == ("document.embedded", 3, "model-2")
    assert store.get(subject.job_id).stage == "notify"


@pytest.mark.parametrize("chunks", [2, 4])
def test_count_mismatch(store: JobStore, subject: Job, chunks: int) -> None:
    """With fewer or more vectors, CountMismatch is raised and nothing is logged."""
    with pytest.raises(CountMismatch, match=f"{chunks} chunks, but 3 vectors"):
        handler(event(subject, chunks), None)
    assert "document.embedded" not in [e.name for e in store.log.read(subject.job_id)]


def test_superseded(store: JobStore, subject: Job, dynamodb: Any) -> None:
    """If a newer version was published, Superseded is raised."""
    newer = document(version="Z" * 26)
    dynamodb.put_item(**document_dependencies.catalog.publish("ana", newer)["Put"])
    with pytest.raises(Superseded):
        handler(event(subject, 4), None)


def test_repeat(store: JobStore, subject: Job) -> None:
    """Repeating the stage gives the same result, and logs nothing."""
    assert handler(event(subject), None) == handler(event(subject), None)
    assert [e.name for e in store.log.read(subject.job_id)].count("document.embedded") == 1


def test_another_execution(subject: Job) -> None:
    """An execution that does not hold the job gets JobClosed."""
    with pytest.raises(JobClosed):
        handler(event(subject, execution="other"), None)
