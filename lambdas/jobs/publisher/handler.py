"""The outbox's reader: new events of the jobs table go to SNS, each with the bytes that were stored.

Order within a job is kept by stopping at the first record that fails: Lambda sends it and the rest again.
https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-batchfailurereporting.html
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from core.aws import clients, settings
from core.aws import errors as aws_errors
from core.aws.blobs import Blobs
from core.aws.streams import stored
from core.events import is_failure
from core.log import logger

PARKED = "event.parked"
OF_JOBS = ("lifecycle", "status")
"""What an event of a job tells besides; an owner's own event has neither."""
KEPT = ("name", "kind", "owner", "event_id", "body", *OF_JOBS)
NOT_THE_EVENTS_FAULT = {"AuthorizationError", "AccessDenied", "AccessDeniedException", "NotFound"}
"""A policy or topic that is amiss: every event would be refused alike, so they wait until it is mended."""


@dataclass(frozen=True)
class Settings:
    events_topic: str
    alerts_topic: str
    data_bucket: str


@dataclass(frozen=True, slots=True)
class Dependencies:
    sns: Any
    parked: Blobs
    events_topic: str
    alerts_topic: str


@functools.cache
def dependencies() -> Dependencies:
    config = settings.load(Settings)
    parked = Blobs(clients.s3(), config.data_bucket)
    return Dependencies(clients.client("sns"), parked, config.events_topic, config.alerts_topic)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    for record in event["Records"]:
        item = stored(record)
        try:
            publish(item)
        except (BotoCoreError, ClientError) as error:
            if aws_errors.is_transient(error) or aws_errors.code(error) in NOT_THE_EVENTS_FAULT:
                logger.warning("publishing stopped", event_id=item["event_id"], reason=aws_errors.code(error))
                return {"batchItemFailures": [{"itemIdentifier": record["dynamodb"]["SequenceNumber"]}]}
            park(item, error)
    return {"batchItemFailures": []}


def publish(item: dict[str, Any]) -> None:
    """Send one stored event to its topics."""
    send(item, dependencies().events_topic)
    if is_failure(item["name"]):
        send(item, dependencies().alerts_topic)


def send(item: dict[str, Any], topic: str) -> None:
    attributes = {"event_type": item["name"], "kind": item["kind"], "owner": item["owner"]}
    attributes |= {key: item[key] for key in OF_JOBS if key in item}
    dependencies().sns.publish(
        TopicArn=topic,
        Message=item["body"],
        MessageAttributes={key: {"DataType": "String", "StringValue": value} for key, value in attributes.items()},
        MessageGroupId=item["owner"],  # fair queues: one owner's flood does not delay the others
    )


def park(item: dict[str, Any], error: Exception) -> None:
    """Put aside what SNS will never take, so that it blocks nothing; `ops republish` reads it again.

    The operators are told: nothing else would show that an event is missing.
    """
    logger.error("event parked", event_id=item["event_id"], reason=aws_errors.code(error))
    facts = {key: value for key, value in item.items() if key in KEPT}
    dependencies().parked.put(f"parked/{item['event_id']}.json", json.dumps(facts).encode())
    alert = json.dumps({"event": PARKED, "event_id": item["event_id"], "reason": aws_errors.code(error)})
    try:
        send({**item, "name": PARKED, "body": alert}, dependencies().alerts_topic)
    except (BotoCoreError, ClientError):
        logger.exception("nobody was told of a parked event", event_id=item["event_id"])
