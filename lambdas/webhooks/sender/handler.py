"""Makes the attempts that the webhooks queue asks for, concurrently."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from core.aws.batch import BatchResponse
from webhooks.sender.batch import BATCH, send
from webhooks.sender.pollers import POLL_SECONDS, POLLERS, THREADS, QueuePollers


def handler(event: dict[str, Any], context: Any) -> BatchResponse:
    """A full batch means that the queue has more messages. Pollers receive and send them at the same time."""
    records = event["Records"]
    if len(records) < BATCH:
        return send(records)
    with ThreadPoolExecutor(THREADS + BATCH) as threads:
        pollers = QueuePollers(threads, until=time.monotonic() + POLL_SECONDS)
        pollers.start(POLLERS)
        response = send(records, threads)
        pollers.join()
    return response
