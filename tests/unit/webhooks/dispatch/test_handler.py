from __future__ import annotations

import json
import time
from typing import Any

import pytest

from core import events
from core.jobs import begin, complete
from kinds.document.kind import DOCUMENT
from tests.unit.examples import DAY, event, job
from tests.unit.webhooks.dispatch.conftest import URL, Bench
from webhooks.dispatch import handler as module

# ── a job's own webhook ──────────────────────────────────────────────────────────────────────────────────────


def test_delivery(bench: Bench) -> None:
    """A final event becomes a delivery with the event's bytes, which is written and then queued."""
    subject = bench.canceled(webhook_url=URL)
    body = bench.bodies(subject)[-1]
    assert bench.arrive(body) == []
    delivery = bench.get(body)
    (queued,) = bench.queued()
    assert (queued.delivery_id, queued.attempts, queued.manual) == (delivery.delivery_id, 0, False)
    assert (delivery.body, delivery.url, delivery.owner, delivery.job_id) == (body, URL, "ana", subject.job_id)
    assert (delivery.sequence, delivery.event) == (3, "document.canceled")
    assert delivery.job_expires_at == subject.expires_at
    assert delivery.expires_at == pytest.approx(time.time() + 30 * DAY, abs=60)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ((), ["document.indexed", "document.failed", "document.canceled"]),
        (("document.chunked", "document.failed"), ["document.chunked", "document.failed"]),
    ],
)
def test_wanted(wanted: tuple[str, ...], expected: list[str]) -> None:
    """A job's URL gets the events that the job names, or the final one."""
    subject = job(webhook_url=URL, webhook_events=wanted)
    log = [event(name=name, lifecycle=lifecycle(name)) for name in DOCUMENT.event_names]
    assert [each.name for each in log if module.job_wants(subject, each)] == expected


def lifecycle(name: str) -> str:
    return "ended" if name in DOCUMENT.final_events else "progress"


# ── endpoints ────────────────────────────────────────────────────────────────────────────────────────────────


def test_body_is_parsed_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The body of a message is parsed once, however many endpoints filter or convert it."""
    for _ in range(3):
        bench.endpoint(filter={"document_id": ["notes"]}, format="cloudevents")
    body = bench.bodies(bench.canceled())[-1]
    parse, parsed = json.loads, []

    def loads(text: Any, **options: Any) -> Any:
        parsed.append(text)
        return parse(text, **options)

    monkeypatch.setattr(json, "loads", loads)
    assert bench.arrive(body) == []
    assert parsed.count(body) - 1 == 1  # one is of `bench.arrive`


def test_repeated_event(bench: Bench) -> None:
    """A repeated event queues only the deliveries without an attempt."""
    waiting, sent, retried, claimed = (bench.endpoint() for _ in range(4))
    body = bench.bodies(bench.canceled())[-1]
    bench.arrive(body)
    store = bench.of.deliveries
    bench.end(bench.get(body, sent), well=True)
    bench.end(bench.get(body, retried))
    assert store.claim(bench.get(body, claimed).delivery_id, attempts=0)
    bench.queued()
    bench.arrive(body)
    assert [queued.endpoint_id for queued in bench.queued()] == [waiting.endpoint_id]


@pytest.mark.parametrize("failing", ["SendMessageBatch", "PutItem", "Query"])
def test_a_failure(bench: Bench, failing: str) -> None:
    """An event that fails is received again, and then all its deliveries are written and queued."""
    endpoints = [bench.endpoint() for _ in range(12)]
    body = bench.bodies(bench.canceled())[-1]
    bench.calls.fail("*", failing, "InternalError")
    assert bench.arrive(body) == [0]
    bench.queued()
    assert bench.arrive(body, receives=2) == []
    assert {queued.endpoint_id for queued in bench.queued()} == {each.endpoint_id for each in endpoints}


def test_partly_queued(bench: Bench) -> None:
    """If SQS refuses some messages, the event fails and is received again."""
    endpoints = [bench.endpoint() for _ in range(12)]
    body = bench.bodies(bench.canceled())[-1]
    failed = {"Id": "3", "Code": "InternalError", "SenderFault": False}
    bench.calls.answers["sqs:SendMessageBatch"] = lambda params: {"Successful": [], "Failed": [failed]}
    assert bench.arrive(body) == [0]
    assert len(bench.queued()) == 12
    bench.calls.answers.clear()
    assert bench.arrive(body, receives=2) == []
    assert len(bench.queued()) == len(endpoints)


def test_expired_job(bench: Bench) -> None:
    """An event of an expired job is ignored."""
    bench.endpoint()
    gone = {"event": "document.indexed", "job_id": "job_gone", "event_id": "evt_1", "timestamp": "", "sequence": 5}
    assert bench.arrive(events.encode(gone)) == []
    assert bench.queued() == []


def test_durations_are_recorded(bench: Bench) -> None:
    """Only the event that completes a job records its duration."""
    done, gone = bench.job(), bench.canceled()
    bench.of.jobs.apply(done.job_id, begin(DOCUMENT, stage="validate", lease="x"))
    bench.clock.advance(600)
    bench.of.jobs.apply(done.job_id, complete(DOCUMENT, lease="x", result={}))
    *before, last = bench.bodies(done)
    assert bench.arrive(*before, *bench.bodies(gone)) == []
    assert bench.of.jobs.durations.history("ana", "document").seconds == ()
    assert bench.arrive(last) == []
    assert bench.of.jobs.durations.history("ana", "document").seconds == (pytest.approx(600, abs=1),)


def test_a_batch(bench: Bench) -> None:
    """A message that fails does not affect the others."""
    bench.endpoint()
    body = bench.bodies(bench.canceled())[-1]
    assert bench.arrive("{", body) == [0]
    assert len(bench.queued()) == 1


# ── the owner's own events ───────────────────────────────────────────────────────────────────────────────────


def test_ping_of_a_deleted_endpoint(bench: Bench) -> None:
    """A ping of a deleted endpoint is ignored."""
    assert bench.arrive(bench.owner_event("ping", endpoint_id="wh_01JDXQ3V8N2M4K6H8G0F2E4D6C")) == []
    assert bench.queued() == []


def test_endpoint_disabled(bench: Bench) -> None:
    """The owner's other endpoints get `endpoint.disabled`, ordered ones too; the disabled one does not."""
    disabled, other = bench.endpoint(enabled=False), bench.endpoint(events=("endpoint.*",))
    ordered = bench.endpoint(ordered=True)
    body = bench.owner_event("endpoint.disabled", endpoint_id=disabled.endpoint_id, reason="gone")
    assert bench.arrive(body) == []
    assert [queued.endpoint_id for queued in bench.queued()] == [other.endpoint_id, ordered.endpoint_id]
    assert bench.find(body, disabled) is None
