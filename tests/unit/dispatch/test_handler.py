from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from core import events
from core.jobs import Job, JobStore, begin, cancel
from core.webhooks.deliveries import Attempt, DeliveryStore, fairness_group
from dispatch import handler as module
from dispatch.handler import handler
from tests.support.calls import Calls
from tests.support.clock import Clock
from tests.unit.examples import DAY, job

URL = "https://example.com/hook"
Messages = Callable[[str], list[Any]]


@pytest.fixture
def store(environment: dict[str, str], jobs_table: str, deliveries_table: str, queues: None) -> JobStore:
    return module.dependencies().jobs


@pytest.fixture
def deliveries(store: JobStore) -> DeliveryStore:
    return module.dependencies().deliveries


def ended(store: JobStore, **facts: Any) -> tuple[Job, str]:
    """A job that was canceled, and the bytes of its last event."""
    job_id = store.submit(job(at=time.time(), **{"webhook_url": URL} | facts)).job.job_id
    store.apply(job_id, begin(stage="validate", lease="x"))
    return store.apply(job_id, cancel), store.events(job_id)[-1].body


def deliver(body: str, receives: int = 1) -> list[dict[str, str]]:
    record = {"messageId": "m", "body": body, "attributes": {"ApproximateReceiveCount": str(receives)}}
    return handler({"Records": [record]}, None)["batchItemFailures"]


def test_delivery(store: JobStore, deliveries: DeliveryStore, messages: Messages) -> None:
    """A final event becomes a delivery with the event's own bytes, written first and then queued."""
    subject, body = ended(store)
    assert deliver(body) == []
    delivery_id = f"{json.loads(body)['event_id']}#default"
    assert messages("WEBHOOKS_QUEUE_URL") == [{"delivery_id": delivery_id, "attempt": 0}]
    delivery = deliveries.get(delivery_id)
    assert delivery is not None
    assert (delivery.body, delivery.url, delivery.owner, delivery.job_id) == (body, URL, "ana", subject.job_id)
    assert delivery.job_expires_at == subject.expires_at
    assert delivery.expires_at == pytest.approx(time.time() + 30 * DAY, abs=60)


@pytest.mark.parametrize(
    ("wanted", "heard"),
    [
        ((), ["document.indexed", "document.failed", "document.canceled"]),
        (("document.chunked", "document.failed"), ["document.chunked", "document.failed"]),
    ],
)
def test_wanted(wanted: tuple[str, ...], heard: list[str]) -> None:
    """A webhook is called with the events that its job names, or else with those that end it."""
    subject = job(webhook_url=URL, webhook_events=wanted)
    assert [name for name in events.names("document") if name in module.wanted(subject)] == heard


@pytest.mark.parametrize("facts", [{"webhook_url": None}, {"webhook_events": ("document.failed",)}])
def test_not_wanted(store: JobStore, deliveries: DeliveryStore, messages: Messages, facts: dict[str, Any]) -> None:
    """A job without a webhook, or with other wishes, is left alone."""
    _, body = ended(store, **facts)
    assert deliver(body) == []
    assert messages("WEBHOOKS_QUEUE_URL") == []
    assert deliveries.get(f"{json.loads(body)['event_id']}#default") is None


def test_an_event_that_comes_twice(store: JobStore, deliveries: DeliveryStore, messages: Messages) -> None:
    """A delivery that still waits for its first attempt is queued again; one that has had one is not."""
    _, body = ended(store)
    deliver(body)
    deliver(body)
    assert len(messages("WEBHOOKS_QUEUE_URL")) == 2
    delivery = deliveries.get(f"{json.loads(body)['event_id']}#default")
    assert delivery is not None
    claim = deliveries.claim(delivery)
    assert claim is not None
    deliver(body)
    deliveries.record(claim, Attempt(at="now", duration_ms=1, error="timeout"), wait=5)
    deliver(body)
    assert len(messages("WEBHOOKS_QUEUE_URL")) == 2


def test_queue_that_fails(store: JobStore, deliveries: DeliveryStore, messages: Messages) -> None:
    """An event whose delivery was written but not queued comes again, and is queued then."""
    _, body = ended(store)
    calls = Calls(Clock())
    calls.fail("sqs", "SendMessage", "InternalError")
    with calls.intercepted():
        assert deliver(body) == [{"itemIdentifier": "m"}]
    assert deliver(body, receives=2) == []
    assert len(messages("WEBHOOKS_QUEUE_URL")) == 1


def test_expired_job(store: JobStore, messages: Messages) -> None:
    """An event of a job that is gone is acknowledged."""
    assert deliver(events.encode({"event": "document.indexed", "job_id": "job_gone", "event_id": "evt_1"})) == []
    assert messages("WEBHOOKS_QUEUE_URL") == []


def test_group(store: JobStore, deliveries: DeliveryStore) -> None:
    """A delivery is queued in the group of its owner and URL."""
    _, body = ended(store)
    calls = Calls(Clock())
    with calls.intercepted():
        deliver(body)
    delivery = deliveries.get(f"{json.loads(body)['event_id']}#default")
    assert delivery is not None
    (sent,) = (call.params for call in calls.log if call.operation == "SendMessage")
    assert sent["MessageGroupId"] == fairness_group(delivery)
