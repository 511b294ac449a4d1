"""Messages of SQS, each on its own: one that fails comes again, the others are done.

https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from core.log import logger

Record = Mapping[str, Any]
BatchResponse = dict[str, list[dict[str, str]]]


def process(event: Mapping[str, Any], handle: Callable[[Record], None], *, workers: int = 1) -> BatchResponse:
    """Handle every record, `workers` at a time, and report those that raised."""

    def attempt(record: Record) -> str | None:
        try:
            handle(record)
        except Exception:
            logger.exception("message failed", message_id=record["messageId"], receives=receives(record))
            return str(record["messageId"])
        return None

    records = event["Records"]
    if workers == 1:
        failed = [attempt(record) for record in records]
    else:
        with ThreadPoolExecutor(workers) as pool:
            failed = list(pool.map(attempt, records))
    return {"batchItemFailures": [{"itemIdentifier": message} for message in failed if message]}


def receives(record: Record) -> int:
    """How often the message has been received, this time included."""
    return int(record["attributes"]["ApproximateReceiveCount"])


MAX_BURIED = 500  # per queue and call


def bury(sqs: Any, queue_url: str, handle: Callable[[str], bool]) -> None:
    """Take dead messages off a queue as far as `handle` is done with them; others stay for an operator."""
    for _ in range(MAX_BURIED // 10):
        messages = sqs.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=0).get(
            "Messages"
        )
        if not messages:
            return
        for message in messages:
            with carrying_on(queue=queue_url, message_id=message["MessageId"]):
                if handle(message["Body"]):
                    sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])


@contextmanager
def carrying_on(**facts: str) -> Iterator[None]:
    """One thing that cannot be done keeps nothing else from being done; it is logged, and tried again later."""
    try:
        yield
    except Exception:
        logger.exception("carrying on", extra=facts)
