"""Deliveries are written first and queued afterwards. The retry scheduler queues those that were only written."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from core.dependencies import DAY_SECONDS, dependencies
from core.events import Event
from core.jobs import Job
from core.webhooks.deliveries import formats
from core.webhooks.deliveries.model import Delivery, draft
from core.webhooks.deliveries.queue import Message
from core.webhooks.endpoints import filters, patterns
from core.webhooks.endpoints.model import DEFAULT, Endpoint
from kinds.registry import KINDS

Created = tuple[Delivery, bool]
"""A delivery, and whether it waits for another one."""


def wants(endpoint: Endpoint, event: Event, *, names: Sequence[str] = ()) -> bool:
    """Whether the endpoint's patterns and filter match the event. `names` are patterns that replace its own."""
    if endpoint.is_default or not patterns.matches(names or endpoint.events, event):
        return False
    return endpoint.filter is None or filters.passes(endpoint.filter, event.payload)


def deliver(event: Event, endpoint: Endpoint, **facts: Any) -> Delivery:
    """The delivery of this event to this endpoint: a new one, or the existing one.

    For a disabled endpoint it is discarded, so that it can be recovered.
    """
    if not endpoint.enabled and not facts.get("single"):
        facts |= {"status": "discarded", "reason": "disabled"}
    body = formats.render(endpoint.format, event, kind=KINDS.get(event.kind))
    return _create(event, endpoint.endpoint_id, format=endpoint.format, body=body, **facts)


def deliver_to_job(event: Event, job: Job) -> Delivery:
    """The delivery of this event to the job's own URL."""
    facts = {"url": job.webhook_url, "job_expires_at": job.expires_at}
    return _create(event, DEFAULT, format="recado", body=event.body, **facts)


def _create(event: Event, endpoint_id: str, **facts: Any) -> Delivery:
    return dependencies.deliveries.create(
        draft(
            event_id=event.event_id,
            event=event.name,
            owner=event.owner,
            job_id=event.job_id,
            sequence=event.sequence,
            endpoint_id=endpoint_id,
            now=time.time(),
            retention_seconds=dependencies.settings.delivery_retention_days * DAY_SECONDS,
            **facts,
        )
    )


def unless_deleted(job_id: str, created: Sequence[Created]) -> Sequence[Created]:
    """The same deliveries, or none if the job was deleted while they were written. Then they are erased."""
    if not created or not dependencies.jobs.listing.deleted([job_id]):
        return created
    for delivery, _ in created:
        dependencies.deliveries.erase(delivery)
    return ()


def queue(ready: Iterable[Delivery]) -> None:
    """Queue the first attempt of each delivery that has had none."""
    dependencies.webhooks_queue.send_all(
        Message.of(delivery) for delivery in ready if delivery.status == "pending" and delivery.attempts == 0
    )
