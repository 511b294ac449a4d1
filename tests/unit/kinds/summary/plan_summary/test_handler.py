"""The first stage of a summary (kinds.summary.plan_summary)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from core.aws.blobs import Blobs
from core.dependencies import dependencies
from core.errors import (
    ContextOverflow,
    CostLimitExceeded,
    DocumentTooLarge,
    EmptyDocument,
    JobClosed,
    ModelRejected,
    SourceNotFound,
)
from core.jobs import JobStore, cancel
from kinds.document.dependencies import document_dependencies
from kinds.document.index.vectors import ObjectVectors, Version
from kinds.document.reading.chunk import chunk
from kinds.summary.files import read_part, read_plan
from kinds.summary.kind import SUMMARY
from kinds.summary.plan_summary.handler import handler
from tests.unit.examples import document
from tests.unit.kinds.summary.model import summary_job

EXECUTION = "arn:execution"
TEXT = "\n\n".join(f"Paragraph {number} has words, and some more of them." for number in range(60))
Submit = Callable[..., dict[str, str]]


@pytest.fixture
def submit(store: JobStore, blobs: Blobs) -> Submit:
    """Writes a job about this content or document; returns the event of its first stage."""

    def write(content: str | None = TEXT, **given: Any) -> dict[str, str]:
        if content is not None:
            etag = blobs.put("uploads/ana/upl_1/a", content.encode())
            given |= {"source_key": "uploads/ana/upl_1/a", "etag": etag, "bytes": len(content)}
        drafted = summary_job(at=time.time(), **given)
        return {"job_id": store.submit(SUMMARY, drafted).job.job_id, "execution": EXECUTION}

    return write


def parts_of(blobs: Blobs, job_id: str) -> list[str]:
    return [read_part(blobs, job_id, number) for number in range(read_plan(blobs, job_id).parts)]


def log(store: JobStore, job_id: str) -> list[dict[str, Any]]:
    return [dict(event.payload) for event in store.log.read(job_id)]


def test_plan(submit: Submit, store: JobStore, blobs: Blobs) -> None:
    """The text is cut into parts, the estimate is logged, and the next stage begins with no part done."""
    event = submit()
    answer = handler(event, None)
    job_id, parts = event["job_id"], parts_of(blobs, event["job_id"])
    assert "".join(parts) == TEXT
    assert answer == {
        "parts": len(parts),
        "last_part": len(parts) - 1,
        "result_key": f"work/{job_id}/summary.json",
    }
    planned = log(store, job_id)[-1]
    assert (planned["event"], planned["stage"], planned["parts"]) == ("summary.planned", "summarize", len(parts))
    assert planned["calls"] > len(parts) > 1
    assert planned["input_tokens"] > len(TEXT) // 2
    assert planned["estimated_cost_usd"] > 0
    assert store.snapshot(job_id).progress == (0, len(parts))


def test_html(submit: Submit, blobs: Blobs) -> None:
    """HTML is read as a document is: its text is summarized, without its markup."""
    event = submit("<html><body><script>x</script><p>Only this.</p></body></html>")
    handler(event, None)
    assert [part.strip() for part in parts_of(blobs, event["job_id"])] == ["Only this."]


def test_document(submit: Submit, blobs: Blobs) -> None:
    """The text of an indexed document comes from the chunks of its live version."""
    chunks = [asdict(c) for c in chunk(TEXT, size=100, overlap=20)]
    vectors = ObjectVectors(blobs, index="model-2", dimensions=2)
    vectors.put(Version("ana", "notes", "1"), 0, [[1.0, 0.0]] * len(chunks), chunks)
    indexed = document(document_id="notes", version="1", batches=1)
    dependencies.dynamodb.put_item(**document_dependencies.catalog.publish("ana", indexed)["Put"])
    event = submit(None, document_id="notes")
    handler(event, None)
    assert "".join(parts_of(blobs, event["job_id"])).split() == TEXT.split()


def test_deleted_document(submit: Submit) -> None:
    """A document that was deleted since the submission fails the job."""
    with pytest.raises(SourceNotFound, match="no longer indexed"):
        handler(submit(None, document_id="gone"), None)


@pytest.mark.parametrize("model", ["bedrock/unpriced", "bedrock/amazon.nova-lite-v1:0"])
def test_cost_limit(submit: Submit, store: JobStore, blobs: Blobs, model: str) -> None:
    """A job whose cost may be above its limit, or is unknown, fails after the estimate is logged."""
    event = submit(max_cost_usd=0.00001, model=model)
    with pytest.raises(CostLimitExceeded, match="max_cost_usd"):
        handler(event, None)
    planned = log(store, event["job_id"])[-1]
    assert (planned["event"], planned["stage"]) == ("summary.planned", "plan")
    assert list(blobs.keys("work/")) == []


def test_cost_within_limit(submit: Submit) -> None:
    """A job whose cost is within its limit goes on."""
    assert handler(submit(max_cost_usd=1.0), None)["parts"] > 1


def test_model_for_smaller_calls(submit: Submit) -> None:
    """A model that is limited to fewer tokens than a call would have fails the job."""
    with pytest.raises(ContextOverflow, match="above the limit of bedrock/small"):
        handler(submit(model="bedrock/small"), None)


def test_removed_model(submit: Submit) -> None:
    """A job for a model that the deployment no longer has fails."""
    with pytest.raises(ModelRejected, match="bedrock/removed"):
        handler(submit(model="bedrock/removed"), None)


@pytest.mark.parametrize(("content", "error"), [(" \n", EmptyDocument), ("x " * 600_000, DocumentTooLarge)])
def test_unusable_texts(submit: Submit, content: str, error: type[Exception]) -> None:
    """An empty and a too large source fail the job."""
    with pytest.raises(error):
        handler(submit(content), None)


def test_repeated(submit: Submit, store: JobStore) -> None:
    """A repetition gives the same answer and logs nothing."""
    event = submit()
    first, logged = handler(event, None), log(store, event["job_id"])
    assert handler(event, None) == first
    assert log(store, event["job_id"]) == logged


def test_canceled_meanwhile(
    submit: Submit, store: JobStore, blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts of a job that was canceled while they were written are deleted."""
    event = submit()
    put = blobs.put

    def cancel_then_put(key: str, *args: Any, **options: Any) -> str:
        store.apply(event["job_id"], cancel)
        return put(key, *args, **options)

    monkeypatch.setattr(dependencies.blobs, "put", cancel_then_put)
    with pytest.raises(JobClosed):
        handler(event, None)
    assert list(blobs.keys("work/")) == []
