"""Once a minute: what no Catch can see. Deadlines that have passed, and messages that failed too often."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from botocore.exceptions import ClientError

from core import aws, clients, settings
from core.errors import NotFound, Unavailable
from core.events import timestamp
from core.jobs import JobStore, fail
from core.log import logger
from core.webhooks.deliveries import Attempt, DeliveryStore, for_job

MAX_MESSAGES = 500  # per queue and minute
GIVEN_UP = "Sending failed too often on our side. The delivery was given up."


@dataclass(frozen=True)
class Settings:
    jobs_table: str
    deliveries_table: str
    indexing_dlq_url: str
    embedding_dlq_url: str
    webhooks_dlq_url: str


@dataclass(frozen=True, slots=True)
class Dependencies:
    jobs: JobStore
    deliveries: DeliveryStore
    states: Any
    sqs: Any
    config: Settings


@functools.cache
def dependencies() -> Dependencies:
    config, dynamodb = settings.load(Settings), clients.dynamodb()
    return Dependencies(
        JobStore(dynamodb, config.jobs_table),
        DeliveryStore(dynamodb, config.deliveries_table),
        clients.client("stepfunctions"),
        clients.client("sqs"),
        config,
    )


def handler(event: dict[str, Any], context: Any) -> None:
    config = dependencies().config
    with carrying_on():
        end_overdue_jobs()
    for queue_url, handle in (
        (config.indexing_dlq_url, never_started),
        (config.embedding_dlq_url, never_embedded),
        (config.webhooks_dlq_url, never_delivered),
    ):
        with carrying_on(queue=queue_url):
            bury(queue_url, handle)


@contextmanager
def carrying_on(**facts: str) -> Iterator[None]:
    """One thing that cannot be done keeps nothing else from being done; a later sweep tries it again."""
    try:
        yield
    except Exception:
        logger.exception("sweep failed", extra=facts)


def end_overdue_jobs() -> None:
    jobs = dependencies().jobs
    for job_id in jobs.overdue():
        with carrying_on(job_id=job_id):
            try:
                jobs.apply(job_id, fail(code="deadline_exceeded", message="The job took too long. Retry it."))
            except NotFound:
                logger.warning("job expired while it was open", job_id=job_id)


def bury(queue_url: str, handle: Callable[[dict[str, Any]], bool]) -> None:
    """Take dead messages off a queue as far as `handle` is done with them; others stay for an operator."""
    sqs = dependencies().sqs
    for _ in range(MAX_MESSAGES // 10):
        messages = sqs.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=0).get(
            "Messages"
        )
        if not messages:
            return
        for message in messages:
            with carrying_on(queue=queue_url, message_id=message["MessageId"]):
                if handle(json.loads(message["Body"])):
                    sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])


def never_started(message: dict[str, Any]) -> bool:
    """A job that could not be started ends; a clean-up that failed stays, to be redriven."""
    if message["event"] != "document.uploaded":
        # what removes a deleted document belongs to no job
        logger.error("clean-up failed too often", job_id=message.get("job_id"), event_name=message["event"])
        return False
    end = fail(code="not_started", message="The job could not be started. Retry it.")
    try:
        dependencies().jobs.apply(message["job_id"], end)
    except NotFound:
        logger.warning("job has expired", job_id=message["job_id"])
    return True


def never_embedded(task: dict[str, Any]) -> bool:
    """The state machine is told, and its Catch ends the job."""
    cause = json.dumps(
        {"errorMessage": "The embedding worker failed too often.", "errorType": Unavailable.__name__}
    )
    try:
        dependencies().states.send_task_failure(
            taskToken=task["task_token"], error=Unavailable.__name__, cause=cause
        )
    except ClientError as error:
        if aws.code(error) not in aws.TOKEN_GONE:
            raise
    return True


def never_delivered(message: dict[str, Any]) -> bool:
    """A delivery whose sender died each time is given up. One that somebody has in hand is looked at again."""
    deliveries = dependencies().deliveries
    delivery = deliveries.get(message["delivery_id"])
    if delivery is None or delivery.status in ("delivered", "failed"):
        return True
    if not deliveries.fail(delivery):
        return False
    logger.error("delivery given up", delivery_id=delivery.delivery_id, attempts=delivery.attempts)
    attempt = Attempt(at=timestamp(time.time()), duration_ms=0, error="internal", message=GIVEN_UP)
    dependencies().jobs.record_webhook(
        delivery.job_id,
        for_job(replace(delivery, status="failed"), attempt),
        at=attempt.at,
        expires_at=delivery.job_expires_at,
    )
    return True
