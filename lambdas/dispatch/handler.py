"""Events become deliveries: one per endpoint that wants to hear, written first and then queued."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any

from core import clients, events, settings
from core.batch import BatchResponse, Record, process
from core.errors import NotFound
from core.events import Event
from core.jobs import Job, JobStore
from core.log import logger
from core.webhooks.deliveries import Delivery, DeliveryStore, fairness_group
from core.webhooks.endpoints import DEFAULT

DAY_SECONDS = 86_400


@dataclass(frozen=True)
class Settings:
    jobs_table: str
    deliveries_table: str
    webhooks_queue_url: str
    delivery_retention_days: int


@dataclass(frozen=True, slots=True)
class Dependencies:
    jobs: JobStore
    deliveries: DeliveryStore
    sqs: Any
    queue_url: str
    retention_seconds: int


@functools.cache
def dependencies() -> Dependencies:
    config, dynamodb = settings.load(Settings), clients.dynamodb()
    return Dependencies(
        JobStore(dynamodb, config.jobs_table),
        DeliveryStore(dynamodb, config.deliveries_table),
        clients.client("sqs"),
        config.webhooks_queue_url,
        config.delivery_retention_days * DAY_SECONDS,
    )


def handler(event: dict[str, Any], context: Any) -> BatchResponse:
    return process(event, handle)


def handle(record: Record) -> None:
    """A redelivered event finds its delivery, and queues it again if it is still waiting to be sent."""
    event = json.loads(record["body"])
    try:
        job = dependencies().jobs.get(event["job_id"])
    except NotFound:
        logger.warning("job has expired", job_id=event["job_id"])
        return
    if job.webhook_url is None or event["event"] not in wanted(job):
        return
    delivery = dependencies().deliveries.create(
        _stored(event, job, record["body"]),
        endpoint_id=DEFAULT,
        url=job.webhook_url,
        job_expires_at=job.expires_at,
        retention_seconds=dependencies().retention_seconds,
    )
    if delivery.status == "pending" and delivery.attempts == 0:
        send(delivery)


def wanted(job: Job) -> tuple[str, ...]:
    """The events that the job's owner named, or those that end it."""
    return job.webhook_events or events.final_names(job.kind)


def send(delivery: Delivery) -> None:
    dependencies().sqs.send_message(
        QueueUrl=dependencies().queue_url,
        MessageBody=json.dumps({"delivery_id": delivery.delivery_id, "attempt": 0}),
        MessageGroupId=fairness_group(delivery),
    )


def _stored(event: dict[str, Any], job: Job, body: str) -> Event:
    return Event(
        event_id=event["event_id"],
        name=event["event"],
        job_id=job.job_id,
        kind=job.kind,
        owner=job.owner,
        sequence=event["sequence"],
        timestamp=event["timestamp"],
        body=body,
    )
