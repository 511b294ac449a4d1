"""Extracting the text of documents (kinds.document.validate_document)."""

from __future__ import annotations

import time

import pytest

from core.aws.blobs import Blobs
from core.dependencies import dependencies
from core.errors import JobClosed
from core.jobs import JobStore, begin, cancel
from kinds.document.dependencies import document_dependencies
from kinds.document.kind import DOCUMENT
from kinds.document.reading.parse import Limits
from kinds.document.validate_document import handler as module
from kinds.document.validate_document.handler import handler
from tests.unit.examples import job

EXECUTION = "arn:execution"
TEXT = "# Año nuevo\n\nA document of two paragraphs.\n\nThis is the other one.\n"
LIMITS = {"MAX_CHARACTERS": "1000", "PARSE_TIMEOUT_SECONDS": "30", "PARSE_MEMORY_MB": "1024"}


@pytest.fixture
def store(environment: dict[str, str], jobs_table: str, bucket: str, monkeypatch: pytest.MonkeyPatch) -> JobStore:
    for name, value in LIMITS.items():
        monkeypatch.setenv(name, value)
    return dependencies.jobs


@pytest.fixture
def event(store: JobStore, blobs: Blobs) -> dict[str, str]:
    key = "uploads/ana/upl_1/a.md"
    etag = blobs.put(key, TEXT.encode())
    subject = store.submit(
        DOCUMENT, job(at=time.time(), input={"document_id": "d", "bytes": 1, "etag": etag, "source_key": key})
    )
    return {"job_id": subject.job.job_id, "source_key": key, "execution": EXECUTION}


def test_text(event: dict[str, str], store: JobStore, blobs: Blobs) -> None:
    """The text is stored in S3, and its key, length and media type are returned."""
    answer = handler(event, None)
    assert answer == {
        "text_key": f"work/{event['job_id']}/text",
        "characters": len(blobs.get(answer["text_key"]).decode()),
        "media_type": "text/markdown",
    }
    assert "Año nuevo" in blobs.get(answer["text_key"]).decode()
    subject = store.get(event["job_id"])
    assert (subject.status, subject.stage, subject.lease) == ("running", "validate", EXECUTION)


def test_limits(store: JobStore) -> None:
    """The limits are the configured ones."""
    assert document_dependencies.limits == Limits(
        max_bytes=1000, max_characters=1000, timeout_seconds=30, memory_mb=1024
    )


def test_ended_job(event: dict[str, str], store: JobStore) -> None:
    """No work is done for a canceled job or another execution."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "parse", lambda *_, **__: pytest.fail("nothing is parsed"))
        store.apply(event["job_id"], begin(DOCUMENT, stage="validate", lease="other"))
        with pytest.raises(JobClosed):
            handler(event, None)
        store.apply(event["job_id"], cancel)
        with pytest.raises(JobClosed):
            handler(event, None)
