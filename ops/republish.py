"""`ops republish`: send events to SNS again, from a job's log or from what was put aside: by the publisher
itself what SNS refused, by Lambda what the publisher could not read off the stream in time.

Subscribers may see an event of `--job` twice; its `event_id` is the same.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from core.aws import clients
from core.aws.blobs import Blobs, parked_key
from core.aws.dynamodb import Item
from core.jobs import JobStore, parked
from core.jobs.publisher import EventPublisher
from ops import stack

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
    blobs, jobs = Blobs(clients.s3(), parts["DataBucket"]), JobStore(clients.dynamodb(), parts["JobsTable"])
    sender = ParkedEvents(blobs, jobs, publisher, parts["PublisherFunction"])
    for key in list(parked.keys(blobs)):
        sender.send(key)
    print(f"{sender.sent} events published, {sender.left} left")
    return 1 if sender.left else 0


class ParkedEvents:
    """Publishes parked events, each once: an object is deleted as soon as its events are published.

    `function`: the name of the publisher. `sent`, `left`: how many events were published, and could not be.
    """

    def __init__(self, blobs: Blobs, jobs: JobStore, publisher: EventPublisher, function: str) -> None:
        self._blobs, self._jobs, self._publisher, self._function = blobs, jobs, publisher, function
        self._published: set[str] = set()
        self.sent = self.left = 0

    def send(self, key: str) -> None:
        """What is refused again stays, and holds up nothing behind it. What is unreadable stays, too."""
        try:
            items = self._wanted(parked.events(self._blobs.get(key), publisher=self._function))
            refused = [item for item in items if not self._publish(key, item)]
            self._keep(key, refused)
        except (parked.Unreadable, BotoCoreError, ClientError) as error:
            print(f"{key}: {error}", file=sys.stderr)
            self.left += 1

    def _wanted(self, items: Sequence[Item]) -> list[Item]:
        """Those that this run has not published, without events of jobs that were deleted since."""
        ids = {job_id for item in items if (job_id := parked.job_of(item))}
        deleted = self._jobs.listing.deleted(ids) if ids else set()
        new = [item for item in items if item["event_id"] not in self._published]
        return [item for item in new if parked.job_of(item) not in deleted]

    def _publish(self, key: str, item: Item) -> bool:
        try:
            self._publisher.publish(item)
        except (BotoCoreError, ClientError) as error:
            print(f"{key}: {error}", file=sys.stderr)
            return False
        self._published.add(item["event_id"])
        self.sent += 1
        return True

    def _keep(self, key: str, refused: Sequence[Item]) -> None:
        """Of a batch, keep what was refused, one object an event, so that the next run sends nothing twice."""
        for item in refused:
            parked.park(self._blobs, item)
        if key not in {parked_key(item["event_id"]) for item in refused}:
            self._blobs.delete([key])
        self.left += len(refused)
