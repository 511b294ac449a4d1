"""The records of an SQS batch, each on its own: one that fails comes again, the others are done.

https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
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
