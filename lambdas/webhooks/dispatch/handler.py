"""Events become deliveries: one per endpoint that wants to hear, written first and then queued."""

from __future__ import annotations

import json
from typing import Any

from core.aws.batch import BatchResponse, Record, process
from core.dependencies import dependencies
from core.errors import NotFound
from core.events import Event
from core.jobs import Job
from core.log import logger
from core.webhooks.deliveries.store import Delivery
from core.webhooks.endpoints.store import Endpoint
from webhooks.dispatch import replay
from webhooks.dispatch.order import deliver_in_order
from webhooks.dispatch.outbox import deliver, deliver_to_job, queue, wants


def handler(event: dict[str, Any], context: Any) -> BatchResponse:
    return process(event, handle)


def handle(record: Record) -> None:
    payload = json.loads(record["body"])
    if payload["event"] in (replay.REQUESTED, replay.CONTINUED):
        replay.go_on(payload["job_id"])
    if payload["event"] == replay.CONTINUED:
        return
    job = _job(payload)
    if job is None and "job_id" in payload:
        return
    event = _event(payload, record, job)
    if job and event.final_status == "completed":
        dependencies.jobs.record_duration(job)
    # A redelivered event finds its deliveries, and queues again those that still wait for a first attempt.
    queue(announce(event, job))


def _job(payload: dict[str, Any]) -> Job | None:
    if "job_id" not in payload:
        return None
    try:
        return dependencies.jobs.get(payload["job_id"])
    except NotFound:
        logger.warning("job has expired", job_id=payload["job_id"])
        return None


def _event(payload: dict[str, Any], record: Record, job: Job | None) -> Event:
    owner = job.owner if job else record["messageAttributes"]["owner"]["stringValue"]
    return Event(
        event_id=payload["event_id"],
        name=payload["event"],
        job_id=payload.get("job_id"),
        kind=payload["event"].partition(".")[0],
        owner=owner,
        sequence=payload.get("sequence"),
        timestamp=payload["timestamp"],
        body=record["body"],
        status=payload.get("status") if job else None,
        lifecycle=_attribute(record, "lifecycle"),
    )


def _attribute(record: Record, name: str) -> str | None:
    """A message attribute that SNS has handed on."""
    attribute = record["messageAttributes"].get(name)
    return str(attribute["stringValue"]) if attribute else None


def announce(event: Event, job: Job | None) -> list[Delivery]:
    """Write the event's deliveries; returns those that wait for nothing but their turn in the queue."""
    if event.name == "ping":
        return ping(event)
    ready = []
    if job and job.webhook_url and is_wanted(event, job):
        ready.append(deliver_to_job(event, job))
    for endpoint in dependencies.endpoints.of(event.owner):
        if wants(endpoint, event) and not is_about(event, endpoint):
            ready += deliver_in_order(event, endpoint) if endpoint.ordered else [deliver(event, endpoint)]
    return ready


def ping(event: Event) -> list[Delivery]:
    """To the endpoint that is tested and to no other, once, whatever its state."""
    endpoint = dependencies.endpoints.find(event.owner, event.payload["endpoint_id"])
    return [deliver(event, endpoint, single=True)] if endpoint else []


def is_about(event: Event, endpoint: Endpoint) -> bool:
    """An endpoint is not told that it has been disabled."""
    return event.job_id is None and event.payload.get("endpoint_id") == endpoint.endpoint_id


def is_wanted(event: Event, job: Job) -> bool:
    """The job's URL is called with the events that its owner named, or with the one that ends it."""
    return event.name in job.webhook_events if job.webhook_events else event.is_last
