"""Creates the deliveries of events, one per endpoint that wants the event, and queues them for the sender."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from core.aws.batch import BatchResponse, Record, process
from core.dependencies import dependencies
from core.errors import NotFound
from core.events import Event
from core.jobs import Job
from core.log import logger
from core.webhooks.deliveries.model import Delivery
from core.webhooks.endpoints.model import Endpoint
from webhooks.dispatch import replay
from webhooks.dispatch.order import deliver_in_order
from webhooks.dispatch.outbox import Created, deliver, deliver_to_job, queue, unless_deleted, wants


def handler(event: dict[str, Any], context: Any) -> BatchResponse:
    return process(event, handle)


def handle(record: Record) -> None:
    payload = json.loads(record["body"])
    if payload["event"] in (replay.REQUESTED, replay.CONTINUED):
        replay.run_slice(payload["job_id"])
    if payload["event"] == replay.CONTINUED:
        return
    job = _job(payload)
    if job is None and "job_id" in payload:
        return
    event = _event(payload, record, job)
    if job and event.final_status == "completed":
        dependencies.jobs.durations.record(job)
    # The deliveries of a repeated message exist; those that have had no attempt are queued again.
    created = create_deliveries(event, job)
    if job:
        created = unless_deleted(job.job_id, created)
    queue(delivery for delivery, waits in created if not waits)


def _job(payload: Mapping[str, Any]) -> Job | None:
    if "job_id" not in payload:
        return None
    try:
        return dependencies.jobs.get(payload["job_id"])
    except NotFound:
        logger.warning("job has expired", job_id=payload["job_id"])
        return None


def _event(payload: Mapping[str, Any], record: Record, job: Job | None) -> Event:
    return Event.of_payload(
        payload,
        body=record["body"],
        owner=job.owner if job else record["messageAttributes"]["owner"]["stringValue"],
        status=payload.get("status") if job else None,
        lifecycle=_attribute(record, "lifecycle"),
    )


def _attribute(record: Record, name: str) -> str | None:
    """A message attribute that SNS has passed on."""
    attribute = record["messageAttributes"].get(name)
    return str(attribute["stringValue"]) if attribute else None


def create_deliveries(event: Event, job: Job | None) -> Sequence[Created]:
    """Write the event's deliveries, and at ordered endpoints those of earlier events that are missing."""
    if event.name == "ping":
        return [(delivery, False) for delivery in deliver_ping(event)]
    created = []
    if job and job.webhook_url and job_wants(job, event):
        created.append((deliver_to_job(event, job), False))
    for endpoint in dependencies.endpoints.of(event.owner):
        if wants(endpoint, event) and not is_about(event, endpoint):
            ordered = endpoint.ordered
            created += deliver_in_order(event, endpoint) if ordered else [(deliver(event, endpoint), False)]
    return created


def deliver_ping(event: Event) -> list[Delivery]:
    """Only to the endpoint that is tested, with one attempt, even if the endpoint is disabled."""
    endpoint = dependencies.endpoints.find(event.owner, event.payload["endpoint_id"])
    return [deliver(event, endpoint, single=True)] if endpoint else []


def is_about(event: Event, endpoint: Endpoint) -> bool:
    """Whether it is an event of this endpoint, such as `endpoint.disabled`, which only other endpoints get."""
    return event.job_id is None and event.payload.get("endpoint_id") == endpoint.endpoint_id


def job_wants(job: Job, event: Event) -> bool:
    """A job's own URL gets the events that the job names, or the last one if it names none."""
    return event.name in job.webhook_events if job.webhook_events else event.is_last
