"""Messages received from the webhooks queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.aws.batch import Failures, Record
from core.webhooks.deliveries.queue import Message


@dataclass(frozen=True, slots=True)
class Received:
    """A record of SQS and the message in its body."""

    record: Record
    message: Message


def parse(records: Sequence[Record], failures: Failures) -> list[Received]:
    """The records with their messages. A record whose body is not a message fails, and is left out."""
    received = []
    for record in records:
        with failures.of(record):
            received.append(Received(record, Message.parse(record["body"])))
    return received
