"""The webhooks queue: messages that ask for attempts. All that a message says is also in the deliveries table.

The message group is the owner, so that an owner with many messages, to however many URLs, delays no other owner:
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-fair-queues.html
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from core.aws.batch import MAX_QUEUE_DELAY_SECONDS
from core.errors import Unavailable
from core.webhooks.deliveries.model import Delivery, host_destination

_BATCH = 10  # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatch.html


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A request for one attempt: number `attempts` + 1. `queued_at` is epoch seconds.

    `manual`: a caller asked for it. `probe`: it is sent although the circuit is open; `host_probe`: although that
    of the host is open. `follows`: the delivery that must have ended before. `slot`: the epoch second that the
    rate limit has reserved for it. `waiting_since`: the epoch second since when senders have had no room for it.
    `host`: the destination of the host in a job's own URL.
    """

    delivery_id: str
    owner: str
    endpoint_id: str
    destination: str
    attempts: int
    queued_at: int
    manual: bool = False
    probe: bool = False
    follows: str | None = None
    slot: float | None = None
    host_probe: bool = False
    waiting_since: float | None = None
    host: str | None = None

    @classmethod
    def of(cls, delivery: Delivery, **facts: Any) -> Message:
        """The attempt of a `single` delivery (a test of an endpoint) is always manual."""
        return cls(
            delivery_id=delivery.delivery_id,
            owner=delivery.owner,
            endpoint_id=delivery.endpoint_id,
            destination=delivery.destination,
            attempts=delivery.attempts,
            queued_at=delivery.queued_at,
            host=host_destination(delivery.url) if delivery.url else None,
            **{"manual": delivery.single} | facts,
        )

    @classmethod
    def parse(cls, body: str) -> Message:
        """Raises ValueError or TypeError if the body is not a message."""
        return cls(**json.loads(body))

    @property
    def body(self) -> str:
        fields = {name: value for name, value in asdict(self).items() if value is not None and value is not False}
        return json.dumps(fields)

    @property
    def group(self) -> str:
        return self.owner


class WebhooksQueue:
    """Sends, receives and deletes messages of the queue that the sender reads."""

    def __init__(self, client: Any, url: str) -> None:
        self._client, self._url = client, url

    def send(self, message: Message, *, delay: float = 0) -> None:
        """`delay` in seconds: rounded up, so that nothing is sent early, and at most MAX_QUEUE_DELAY_SECONDS."""
        self._client.send_message(
            QueueUrl=self._url,
            MessageBody=message.body,
            MessageGroupId=message.group,
            DelaySeconds=_delay_seconds(delay),
        )

    def send_all(self, messages: Iterable[Message], *, delay: Callable[[Message], float] = lambda _: 0) -> None:
        """In batches of ten. Raises Unavailable if SQS refused some; these deliveries are queued again later."""
        rest, refused = list(messages), 0
        while rest:
            refused += self._send_batch(rest[:_BATCH], delay)
            rest = rest[_BATCH:]
        if refused:
            raise Unavailable(f"the queue refused {refused} messages")

    def _send_batch(self, messages: Sequence[Message], delay: Callable[[Message], float]) -> int:
        """How many messages SQS refused. It accepts the others of the batch."""
        entries = [
            {
                "Id": str(number),
                "MessageBody": message.body,
                "MessageGroupId": message.group,
                "DelaySeconds": _delay_seconds(delay(message)),
            }
            for number, message in enumerate(messages)
        ]
        answer = self._client.send_message_batch(QueueUrl=self._url, Entries=entries)
        return len(answer.get("Failed", []))

    def receive(self, count: int, *, wait_seconds: int = 0) -> list[dict[str, Any]]:
        """Up to `count` messages (at most 10), in the form of the records that Lambda passes.

        If there is none, it waits up to `wait_seconds` for one.
        """
        answer = self._client.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=count,
            WaitTimeSeconds=wait_seconds,
            MessageSystemAttributeNames=["ApproximateReceiveCount"],
        )
        return [
            {
                "messageId": message["MessageId"],
                "receiptHandle": message["ReceiptHandle"],
                "body": message["Body"],
                "attributes": message["Attributes"],
            }
            for message in answer.get("Messages", [])
        ]

    def delete(self, records: Sequence[Mapping[str, Any]]) -> None:
        """At most 10. A message that is not deleted is received again; its attempt is not made again."""
        if records:
            entries = [
                {"Id": str(n), "ReceiptHandle": record["receiptHandle"]} for n, record in enumerate(records)
            ]
            self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)


def _delay_seconds(delay: float) -> int:
    return max(0, min(MAX_QUEUE_DELAY_SECONDS, math.ceil(delay)))
