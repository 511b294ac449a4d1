"""The first stage of a bulk embedding (kinds.embedding.plan_embedding)."""

from __future__ import annotations

from typing import Any

import pytest

from core.aws.blobs import Blobs
from core.errors import CostLimitExceeded, EmptyDocument, JobClosed
from core.jobs import JobStore, cancel
from kinds.embedding.files import read_lines, read_texts
from kinds.embedding.plan_embedding.handler import handler
from tests.unit.kinds.embedding.model import EXECUTION, submitted

LINES = b'"a"\n\n"b"\n"a"\n"c"\n"d"\n'


def planned(store: JobStore, job_id: str) -> dict[str, Any]:
    return dict(list(store.log.read(job_id))[-1].payload)


def run(store: JobStore, blobs: Blobs, data: bytes, **given: Any) -> tuple[str, dict[str, int]]:
    job_id = submitted(store, blobs, data, **given).job_id
    return job_id, handler({"job_id": job_id, "execution": EXECUTION}, None)


def test_plan(store: JobStore, blobs: Blobs) -> None:
    """Different texts are cut into batches, lines and estimate are recorded, and the next stage begins."""
    job_id, answer = run(store, blobs, LINES)
    assert answer == {"batches": 2, "last_batch": 1}
    assert [read_texts(blobs, job_id, batch) for batch in range(2)] == [["a", "b", "c"], ["d"]]
    assert [line.text for line in read_lines(blobs, job_id)] == [0, None, 1, 0, 2, 3]
    event = planned(store, job_id)
    assert (event["event"], event["stage"]) == ("embedding.planned", "embed")
    assert (event["lines"], event["texts"], event["batches"], event["input_tokens"]) == (6, 4, 2, 4)
    assert event["estimated_cost_usd"] == 0.00000008
    assert store.snapshot(job_id).progress == (0, 2)


def test_errors_only(store: JobStore, blobs: Blobs) -> None:
    """A file whose every line is wrong has one batch without texts."""
    job_id, answer = run(store, blobs, b"{\n[]\n")
    assert (answer, read_texts(blobs, job_id, 0)) == ({"batches": 1, "last_batch": 0}, [])


def test_cost(store: JobStore, blobs: Blobs) -> None:
    """An upload that may cost too much fails the job after the estimate is logged."""
    job_id = submitted(store, blobs, LINES, max_cost_usd=0.00000007).job_id
    with pytest.raises(CostLimitExceeded, match="Nothing was spent"):
        handler({"job_id": job_id, "execution": EXECUTION}, None)
    assert (planned(store, job_id)["event"], planned(store, job_id)["stage"]) == ("embedding.planned", "plan")
    assert list(blobs.keys("work/")) == []


def test_empty(store: JobStore, blobs: Blobs) -> None:
    """An empty upload fails the job."""
    with pytest.raises(EmptyDocument):
        run(store, blobs, b"")


def test_canceled(store: JobStore, blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left of a job that is canceled while its batches are written."""
    job_id = submitted(store, blobs, LINES).job_id
    put = Blobs.put

    def put_and_cancel(self: Blobs, key: str, *args: Any, **options: Any) -> str:
        store.apply(job_id, cancel)
        return put(self, key, *args, **options)

    monkeypatch.setattr(Blobs, "put", put_and_cancel)
    with pytest.raises(JobClosed):
        handler({"job_id": job_id, "execution": EXECUTION}, None)
    assert list(blobs.keys("work/")) == []
