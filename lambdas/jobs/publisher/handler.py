"""The outbox's reader: new events of the jobs table go to SNS, each with the bytes that were stored.

Order within a job is kept by stopping at the first record that fails: Lambda sends it and the rest again.
https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-batchfailurereporting.html
"""

from __future__ import annotations

import json
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from core.aws import errors as aws_errors
from core.aws.dynamodb import stored
from core.dependencies import dependencies
from core.jobs.publisher import OF_JOBS
from core.log import logger

PARKED = "event.parked"
KEPT = ("name", "kind", "owner", "event_id", "body", *OF_JOBS)
WAITS_FOR_A_FIX = {"AuthorizationError", "AccessDenied", "AccessDeniedException", "NotFound"}
"""A policy or a topic is wrong. SNS would refuse every event, so all of them wait until it is mended."""


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    for record in event["Records"]:
        item = stored(record)
        try:
            dependencies.publisher.publish(item)
        except (BotoCoreError, ClientError) as error:
            if aws_errors.is_transient(error) or aws_errors.code(error) in WAITS_FOR_A_FIX:
                logger.warning("publishing stopped", event_id=item["event_id"], reason=aws_errors.code(error))
                return {"batchItemFailures": [{"itemIdentifier": record["dynamodb"]["SequenceNumber"]}]}
            park(item, error)
    return {"batchItemFailures": []}


def park(item: dict[str, Any], error: Exception) -> None:
    """Store an event that SNS will never take, so that it blocks no other; `ops republish` sends it again.

    The operators get an alert: nothing else would show that an event is missing.
    """
    logger.error("event parked", event_id=item["event_id"], reason=aws_errors.code(error))
    facts = {key: value for key, value in item.items() if key in KEPT}
    dependencies.blobs.put(f"parked/{item['event_id']}.json", json.dumps(facts).encode())
    alert = json.dumps({"event": PARKED, "event_id": item["event_id"], "reason": aws_errors.code(error)})
    try:
        dependencies.publisher.alert({**item, "name": PARKED, "body": alert})
    except (BotoCoreError, ClientError):
        logger.exception("the alert of a parked event was not sent", event_id=item["event_id"])
