"""The kind `document` (kinds.document.kind)."""

from __future__ import annotations

from typing import Any

import pytest

from core.errors import InvalidRequest, PayloadTooLarge, Superseded
from core.jobs import Inputs, Services
from kinds.document.index.catalog import Catalog
from kinds.document.index.vectors import Version, version_of
from kinds.document.kind import DOCUMENT, DocumentInput
from tests.unit.core.jobs.memory_table import MemoryTable
from tests.unit.core.memory_blobs import MemoryBlobs
from tests.unit.examples import job

RESULT = {
    "document_id": "notes",
    "version": "v",
    "media_type": "text/plain",
    "characters": 40,
    "chunks": 3,
    "batches": 2,
    "index": "model-2",
}


def test_event_names() -> None:
    """A document's job logs its steps, its final events, retries and progress."""
    assert set(DOCUMENT.event_names) == {
        "document.uploaded",
        "document.started",
        "document.chunked",
        "document.embedded",
        "document.indexed",
        "document.failed",
        "document.canceled",
        "document.retried",
        "document.progressed",
    }
    assert DOCUMENT.final_events == ("document.indexed", "document.failed", "document.canceled")


def test_stages() -> None:
    """The stages are those of its state machine, in order."""
    assert DOCUMENT.all_stages == ("queued", "validate", "chunk", "embed", "store", "notify")


def test_subject() -> None:
    """The subject is the document. The first event has the size, and no key."""
    stored = job().input
    assert DOCUMENT.subject_of(stored) == {"document_id": "notes"}
    assert DOCUMENT.submitted_fields(stored) == {"bytes": 12}


def test_versions() -> None:
    """A version is the ULID of the job's id, so later jobs have later versions."""
    subject = job(job_id="job_01JDXQ3V8N2M4K6H8G0F2E4D6C", input={"document_id": "a/b", "bytes": 1})
    assert version_of(subject) == Version("ana", "a/b", "01JDXQ3V8N2M4K6H8G0F2E4D6C")


def inputs(blobs: MemoryBlobs) -> Inputs:
    return Inputs(owner="ana", job_id="job_1", blobs=blobs, max_inline_bytes=9, max_upload_bytes=9)


@pytest.mark.parametrize(("given", "name"), [({}, "job_1"), ({"document_id": "a/b"}, "a/b")])
def test_text(given: dict[str, str], name: str) -> None:
    """A text is stored. The document's name is `document_id`, or the job's id."""
    blobs = MemoryBlobs()
    stored = DOCUMENT.prepare(DocumentInput(text="hello", **given), inputs(blobs))
    assert stored == {"document_id": name, "source_key": "inputs/ana/job_1", "etag": '"etag"', "bytes": 5}
    assert blobs.objects == {"inputs/ana/job_1": b"hello"}


def test_upload() -> None:
    """An upload is not copied, and the job is bound to its ETag."""
    blobs = MemoryBlobs()
    blobs.put("uploads/ana/upl_1/a", b"12345")
    stored = DOCUMENT.prepare(DocumentInput(s3_key="uploads/ana/upl_1/a"), inputs(blobs))
    assert stored["source_key"] == "uploads/ana/upl_1/a"
    assert list(blobs.objects) == ["uploads/ana/upl_1/a"]


@pytest.mark.parametrize(
    ("given", "raised", "field"),
    [
        ({"text": "0123456789"}, PayloadTooLarge, "input.text"),
        ({"s3_key": "uploads/ana/large"}, PayloadTooLarge, "input.s3_key"),
        ({"s3_key": "uploads/ana/none"}, InvalidRequest, "input.s3_key"),
        ({"s3_key": ""}, InvalidRequest, "input.s3_key"),
    ],
)
def test_refused_sources(given: dict[str, str], raised: type[Any], field: str) -> None:
    """The error names the field of the source."""
    blobs = MemoryBlobs()
    blobs.put("uploads/ana/large", b"0123456789")
    with pytest.raises(raised) as caught:
        DOCUMENT.prepare(DocumentInput(**given), inputs(blobs))
    assert caught.value.field == field


def test_execution_input() -> None:
    """The input of the execution has keys and no text."""
    subject = job()
    assert DOCUMENT.execution_input(subject) == {
        "document_id": "notes",
        "version": version_of(subject).version,
        "source_key": "inputs/ana/1",
    }


def test_completion() -> None:
    """Completing publishes this version, and shows the result's fields."""
    table, subject = MemoryTable(), job(metadata={"year": "2026"})
    completion = DOCUMENT.on_complete(subject, RESULT, Services(MemoryBlobs(), table, "jobs"))
    assert set(completion.result) == {"document_id", "version", "media_type", "characters", "chunks"}
    assert isinstance(completion.on_condition_failed, Superseded)
    (write,) = completion.writes
    table.put_item(**write["Put"])
    live = Catalog(table, "jobs").get("ana", "notes")
    assert live is not None
    assert (live.version, live.job_id) == (version_of(subject).version, subject.job_id)
    assert (live.index, live.batches, live.metadata) == ("model-2", 2, {"year": "2026"})
