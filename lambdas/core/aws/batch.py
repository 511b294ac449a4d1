"""Batches of SQS messages. Only the messages that failed are received again.

https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from core.log import log_exception, logger

Record = Mapping[str, Any]
BatchResponse = dict[str, list[dict[str, str]]]
# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-delay-queues.html
MAX_QUEUE_DELAY_SECONDS = 900


class Failures:
    """The messages of a batch that failed and are to be received again."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._failed: set[str] = set()

    @contextmanager
    def of(self, *records: Record) -> Iterator[None]:
        """An exception in this context fails the records and is logged."""
        try:
            yield
        except Exception as error:
            for record in records:
                log_exception("message failed", error, message_id=record["messageId"], receives=receives(record))
                self._failed.add(record["messageId"])

    @property
    def response(self) -> BatchResponse:
        failed = (record["messageId"] for record in self._records if record["messageId"] in self._failed)
        return {"batchItemFailures": [{"itemIdentifier": message} for message in failed]}


def process(event: Mapping[str, Any], handle: Callable[[Record], None]) -> BatchResponse:
    """Handle every record. The response names the records that raised."""
    records = event["Records"]
    failures = Failures(records)
    for record in records:
        with failures.of(record):
            handle(record)
    return failures.response


def receives(record: Record) -> int:
    """How often the message was received, including this time."""
    return int(record["attributes"]["ApproximateReceiveCount"])


MAX_DRAINED = 500  # messages per call


def drain(sqs: Any, queue_url: str, handle: Callable[[str], bool]) -> None:
    """Delete the messages of a dead-letter queue for which `handle` returns True. Operators handle the others."""
    for _ in range(MAX_DRAINED // 10):
        messages = sqs.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=0).get(
            "Messages"
        )
        if not messages:
            return
        for message in messages:
            with log_and_continue(queue=queue_url, message_id=message["MessageId"]):
                if handle(message["Body"]):
                    sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])


@contextmanager
def log_and_continue(**facts: str) -> Iterator[None]:
    """Log an exception and continue, so that one failure does not prevent the work on other items."""
    try:
        yield
    except Exception:
        logger.exception("failed, continuing with the rest", extra=facts)
