"""Runs once a minute, for deliveries that the webhooks queue does not deliver by itself.

These are deliveries that are due later than a queue can delay, that were written but never queued, that are held
for a circuit, and those whose messages are in the dead-letter queue.
"""

from __future__ import annotations

import functools
import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from core.aws.batch import drain, log_and_continue
from core.dependencies import dependencies
from core.log import logger
from core.webhooks.deliveries.rows import DUE_SHARDS
from webhooks.retry_scheduler.circuits import check_circuits
from webhooks.retry_scheduler.dead_letters import record_failed_attempt
from webhooks.retry_scheduler.queueing import queue_due

WORKERS = 8
SECONDS = 45  # of the minute until the next run, which does the rest


def handler(event: dict[str, Any], context: Any) -> None:
    until = time.monotonic() + SECONDS
    with log_and_continue(step="dead letters"):
        drain(dependencies.sqs, dependencies.settings.webhooks_dlq_url, record_failed_attempt)
    with log_and_continue(step="circuits"):
        check_circuits(until - SECONDS / 2)
    # in random order, so that a backlog in some shards does not always delay the same others
    shards = random.sample(range(DUE_SHARDS), DUE_SHARDS)
    with ThreadPoolExecutor(WORKERS) as pool:
        queued = sum(pool.map(functools.partial(queue_due, until=until), shards))
    if queued:
        logger.info("due deliveries queued", count=queued)
