"""Publishes new events of the jobs table to SNS (transactional outbox), each with the bytes that were stored.

Stops at the first record that fails, so that events of a job stay in order: Lambda retries it and the rest.
https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-batchfailurereporting.html
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from core.aws import errors as aws_errors
from core.aws.dynamodb import Item, new_image
from core.dependencies import dependencies
from core.jobs import parked
from core.log import logger

PARKED = "event.parked"
CONFIGURATION_ERRORS = {"AuthorizationError", "AccessDenied", "AccessDeniedException", "NotFound"}
"""A policy or a topic is wrong. SNS refuses every event, so all of them wait until it is corrected."""


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    records = event["Records"]
    try:
        deleted = _deleted_jobs([new_image(record) for record in records])
    except (BotoCoreError, ClientError) as error:
        logger.warning("jobs not read, will retry", reason=aws_errors.reason(error))
        return _retry_from(records[0])
    for record in records:
        item = new_image(record)
        if item.get("job_id") in deleted:
            logger.info("event of a deleted job dropped", event_id=item["event_id"])
            continue
        try:
            dependencies.publisher.publish(item)
        except (BotoCoreError, ClientError) as error:
            if aws_errors.is_transient(error) or aws_errors.code(error) in CONFIGURATION_ERRORS:
                reason = aws_errors.code(error)
                logger.warning("event not published, will retry", event_id=item["event_id"], reason=reason)
                return _retry_from(record)
            park(item, error)
    return {"batchItemFailures": []}


def _deleted_jobs(items: Sequence[Item]) -> set[str]:
    """The jobs of these events that were deleted since. A batch has at most 100 events."""
    return dependencies.jobs.listing.deleted({item["job_id"] for item in items if "job_id" in item})


def _retry_from(record: dict[str, Any]) -> dict[str, Any]:
    return {"batchItemFailures": [{"itemIdentifier": record["dynamodb"]["SequenceNumber"]}]}


def park(item: dict[str, Any], error: Exception) -> None:
    """Store an event that SNS refuses for good, so that later events are published. `ops republish` publishes it.

    Operators get an alert, since nothing else shows that an event is missing.
    """
    logger.error("event parked", event_id=item["event_id"], reason=aws_errors.code(error))
    parked.park(dependencies.blobs, item)
    alert = json.dumps({"event": PARKED, "event_id": item["event_id"], "reason": aws_errors.code(error)})
    try:
        dependencies.publisher.alert({**item, "name": PARKED, "body": alert})
    except (BotoCoreError, ClientError):
        logger.exception("alert about a parked event not sent", event_id=item["event_id"])
