"""The webhooks queue: what is to be sent now. The deliveries table knows everything that a message says.

The group is the destination, so that a slow receiver keeps only its own deliveries waiting:
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-fair-queues.html
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from core.errors import Unavailable
from core.webhooks.deliveries.store import MAX_QUEUE_DELAY_SECONDS, Delivery

_BATCH = 10  # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatch.html


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One attempt to be made: the one after `attempts`. `queued_at` is epoch seconds.

    `manual`: somebody asked for it. `probe`: it may pass an open circuit. `follows`: the delivery that must have
    ended first. `slot`: the epoch second that the rate limit reserved for it.
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

    @classmethod
    def of(cls, delivery: Delivery, **facts: Any) -> Message:
        """A test of an endpoint (`single`) is always made as if by hand."""
        return cls(
            delivery_id=delivery.delivery_id,
            owner=delivery.owner,
            endpoint_id=delivery.endpoint_id,
            destination=delivery.destination,
            attempts=delivery.attempts,
            queued_at=delivery.queued_at,
            **{"manual": delivery.single} | facts,
        )

    @classmethod
    def parse(cls, body: str) -> Message:
        return cls(**json.loads(body))

    @property
    def body(self) -> str:
        said = {name: value for name, value in asdict(self).items() if value is not None and value is not False}
        return json.dumps(said)

    @property
    def group(self) -> str:
        return f"{self.owner}-{self.destination}"


class WebhooksQueue:
    """Sends messages to the queue that the sender reads."""

    def __init__(self, client: Any, url: str) -> None:
        self._client, self._url = client, url

    def send(self, message: Message, *, delay: float = 0) -> None:
        """`delay` in seconds: rounded up, as nothing is to come early, and cut to the longest that SQS knows."""
        self._client.send_message(
            QueueUrl=self._url,
            MessageBody=message.body,
            MessageGroupId=message.group,
            DelaySeconds=max(0, min(MAX_QUEUE_DELAY_SECONDS, math.ceil(delay))),
        )

    def send_all(self, messages: Iterable[Message]) -> None:
        """Ten at a time. Raises Unavailable where SQS took only a part: what is pending is sent again later."""
        rest, refused = list(messages), 0
        while rest:
            refused += self._send_batch(rest[:_BATCH])
            rest = rest[_BATCH:]
        if refused:
            raise Unavailable(f"the queue refused {refused} messages")

    def _send_batch(self, messages: Sequence[Message]) -> int:
        """How many were refused, which keeps none of the others back."""
        entries = [
            {"Id": str(number), "MessageBody": message.body, "MessageGroupId": message.group}
            for number, message in enumerate(messages)
        ]
        answer = self._client.send_message_batch(QueueUrl=self._url, Entries=entries)
        return len(answer.get("Failed", []))

    def receive(self, count: int) -> list[dict[str, Any]]:
        """Up to `count` messages that wait now, in the form of the records that Lambda hands over."""
        answer = self._client.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=count,
            WaitTimeSeconds=0,
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
        """Messages that are done. One that stays comes again, and finds that it is."""
        if records:
            entries = [
                {"Id": str(n), "ReceiptHandle": record["receiptHandle"]} for n, record in enumerate(records)
            ]
            self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)
