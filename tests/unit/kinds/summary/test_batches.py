"""The messages that the worker gets for a summary (kinds.summary.batches)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from core.aws.blobs import Blobs
from core.errors import ContentFiltered, JobClosed, ModelUnavailable, Postponed
from core.jobs import Job, JobStore, Wait, begin, cancel
from kinds.summary.files import write_parts
from kinds.summary.kind import SUMMARY
from kinds.summary.models import Summary
from kinds.summary.sample import MAX_TRIES
from tests.unit.kinds.summary.model import FakeCaller, summary_job

EXECUTION = "arn:execution"
PARTS = ["one", "two", "three"]


@pytest.fixture
def subject(store: JobStore, blobs: Blobs, caller: FakeCaller) -> Job:
    """A job whose text has three parts."""
    return running(store, blobs)


def running(store: JobStore, blobs: Blobs, **given: Any) -> Job:
    job_id = store.submit(SUMMARY, summary_job(at=time.time(), **given)).job.job_id
    write_parts(blobs, job_id, PARTS, part_tokens=600)
    store.apply(job_id, begin(SUMMARY, stage="plan", lease=EXECUTION))
    return store.apply(job_id, begin(SUMMARY, stage="summarize", lease=EXECUTION))


def send(subject: Job, batch: int, **more: Any) -> None:
    assert SUMMARY.on_batch is not None
    message = {"job_id": subject.job_id, "execution": EXECUTION, "batch": batch, **more}
    SUMMARY.on_batch(subject, message, lambda: 300.0)


def reduce(subject: Job) -> None:
    send(subject, len(PARTS), reduce=True)


def result(blobs: Blobs, subject: Job) -> Summary:
    return Summary.model_validate_json(blobs.get(f"work/{subject.job_id}/summary.json"))


def verbs(store: JobStore, subject: Job) -> list[str]:
    return [event.name.removeprefix("summary.") for event in store.log.read(subject.job_id)]


def test_messages(subject: Job, store: JobStore, blobs: Blobs, caller: FakeCaller) -> None:
    """Progress counts parts, the last stage logs that they are summarized, and the result has all calls."""
    for batch in range(3):
        send(subject, batch)
        assert store.snapshot(subject.job_id).progress == (batch + 1, 3)
    reduce(subject)
    found = result(blobs, subject)
    assert (found.summary, found.parts, found.calls, found.sample) == ("Short.", 3, 4, False)
    assert found.cost_usd == 0.004
    assert store.get(subject.job_id).stage == "reduce"
    assert verbs(store, subject)[-1] == "summarized"
    assert sum(caller.paid.values()) == 4


def test_stage_while_merging(subject: Job, store: JobStore, caller: FakeCaller) -> None:
    """While the summaries are merged, and if that has to wait, the job is in its last stage."""
    for batch in range(3):
        send(subject, batch)
    caller.waits = [Wait("rate_limit", 3)]
    with pytest.raises(Postponed):
        reduce(subject)
    assert store.get(subject.job_id).stage == "reduce"
    assert verbs(store, subject)[-1] == "summarized"


def test_repeated_messages(subject: Job, store: JobStore, blobs: Blobs, caller: FakeCaller) -> None:
    """Messages that come again change nothing and pay nothing."""
    for _ in range(2):
        for batch in range(3):
            send(subject, batch)
    reduce(subject)
    first, logged = result(blobs, subject), verbs(store, subject)
    reduce(subject)
    assert result(blobs, subject) == first
    assert verbs(store, subject) == logged
    assert set(caller.paid.values()) == {1}


def test_canceled(subject: Job, store: JobStore, caller: FakeCaller) -> None:
    """The model is not called for a job that was canceled meanwhile."""
    store.apply(subject.job_id, cancel)
    with pytest.raises(JobClosed):
        send(subject, 0)
    assert not caller.paid


# ── a sample ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("failing", ["part", "reduce"])
@pytest.mark.parametrize("circuit", [False, True], ids=["unavailable", "circuit"])
def test_sample(store: JobStore, blobs: Blobs, caller: FakeCaller, failing: str, circuit: bool) -> None:
    """If no model answers in three tries and the caller allows it, a sample is the result, and says so."""
    subject = running(store, blobs, allow_sample=True)
    for batch in range(3 if failing == "reduce" else 0):
        send(subject, batch)
    paid = sum(caller.paid.values())
    caller.waits = [Wait("provider_circuit", 10)] * MAX_TRIES if circuit else []
    caller.errors = [ModelUnavailable("down")] * MAX_TRIES
    more = {"reduce": True} if failing == "reduce" else {}
    for _ in range(MAX_TRIES - 1):
        with pytest.raises((ModelUnavailable, Postponed)):
            send(subject, 3 if more else 0, **more)
    for batch in range(0 if more else 3):
        send(subject, batch)
    reduce(subject)
    found = result(blobs, subject)
    assert (found.sample, found.model, found.calls) == (True, "sample", paid)
    assert found.cost_usd == pytest.approx(0.001 * paid)
    assert "sample" in found.summary
    assert sum(caller.paid.values()) == paid


@pytest.mark.parametrize(
    ("allowed", "error"),
    [(False, ModelUnavailable("down")), (True, ContentFiltered("no")), (True, Postponed("rate_limit", 3))],
)
def test_no_sample(store: JobStore, blobs: Blobs, caller: FakeCaller, allowed: bool, error: Exception) -> None:
    """Without permission, and for other errors than an unavailable model, there is no sample."""
    subject = running(store, blobs, allow_sample=allowed)
    for _ in range(MAX_TRIES + 1):
        caller.errors = [error]
        with pytest.raises(type(error)):
            send(subject, 0)
    send(subject, 0)
    assert json.loads(blobs.get(f"work/{subject.job_id}/answers/part-0000.json"))["text"] == "Short. "
