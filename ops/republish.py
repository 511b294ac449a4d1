"""`ops republish`: send events to SNS again, from a job's log or from what was put aside: by the publisher
itself what SNS refused, by Lambda what the publisher could not read off the stream in time.

Subscribers may see an event twice; its `event_id` is the same.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from core.aws import clients
from core.aws.blobs import Blobs
from core.aws.dynamodb import new_image
from core.jobs import JobStore
from core.jobs.publisher import EventPublisher
from ops import stack

PARKED = "parked/"
# https://docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-errors.html
DISCARDED = "aws/lambda/"
PAGE = 1000


def add_commands(commands: Any) -> None:
    command = commands.add_parser("republish", help="send events again: of one job, or all that were parked")
    which = command.add_mutually_exclusive_group(required=True)
    which.add_argument("--job", help="the id of a job whose whole log is sent")
    which.add_argument("--parked", action="store_true", help="what could not be sent, removed once it is")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 if all was sent; 1 if there was no such job, or SNS refused again."""
    parts = stack.outputs(options.stack)
    publisher = EventPublisher(clients.client("sns"), parts["DocEventsTopic"], parts["ErrorAlertsTopic"])
    return _send_parked(parts, publisher) if options.parked else _send_log(parts, publisher, options.job)


def _send_log(parts: Mapping[str, str], publisher: EventPublisher, job_id: str) -> int:
    sent = 0
    for event in JobStore(clients.dynamodb(), parts["JobsTable"]).log.read_all(job_id, page_size=PAGE):
        publisher.publish(asdict(event))
        sent += 1
    if not sent:
        print(f"there is no job {job_id}, or it has expired", file=sys.stderr)
        return 1
    print(f"{sent} events published")
    return 0


def _send_parked(parts: Mapping[str, str], publisher: EventPublisher) -> int:
    blobs = Blobs(clients.s3(), parts["DataBucket"])
    keys = [key for key in blobs.keys(PARKED) if key.endswith(".json")] + list(blobs.keys(DISCARDED))
    sent = [_send(blobs, publisher, key) for key in keys]
    refused = sent.count(None)
    print(f"{sum(filter(None, sent))} events published, {refused} left")
    return 1 if refused else 0


def _send(blobs: Blobs, publisher: EventPublisher, key: str) -> int | None:
    """How many events were sent. What SNS refuses again stays where it is, and holds up nothing behind it."""
    try:
        items = _items(json.loads(blobs.get(key)))
        for item in items:
            publisher.publish(item)
    except (BotoCoreError, ClientError) as error:
        print(f"{key}: {error}", file=sys.stderr)
        return None
    blobs.delete([key])
    return len(items)


def _items(content: dict[str, Any]) -> list[dict[str, Any]]:
    """One event as the publisher parks it, or the batch in Lambda's report of an invocation that it gave up."""
    if "payload" not in content:
        return [content]
    return [new_image(record) for record in json.loads(content["payload"])["Records"]]
