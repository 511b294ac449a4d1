"""Threads that receive more messages from the webhooks queue while the function runs.

Most of the time of an attempt is spent waiting for the receiver, so a sender can make many at once.
"""

from __future__ import annotations

import functools
import time
from concurrent.futures import Executor, Future
from typing import Any

from core.aws.batch import log_and_continue
from core.dependencies import dependencies
from core.webhooks.deliveries.queue import WebhooksQueue
from webhooks.sender.batch import BATCH, send

GROUP = 50  # messages that are sent together; their records are written 25 at a time
POLLERS, MAX_POLLERS = 3, 8
POLL_SECONDS = 10  # a group that is received at the last moment still ends before the function's timeout
THREADS = MAX_POLLERS * (GROUP + 1)  # a poller, and an attempt for each message of its group


class QueuePollers:
    """Each poller sends group after group until the queue is empty or the time is over (`time.monotonic`).

    For a group with a slow receiver, another poller is started once.
    """

    def __init__(self, threads: Executor, *, until: float) -> None:
        self._threads, self._until = threads, until
        self._started: list[Future[None]] = []

    def start(self, count: int = 1) -> None:
        for _ in range(min(count, MAX_POLLERS - len(self._started))):
            self._started.append(self._threads.submit(self._poll))

    def join(self) -> None:
        for future in self._started:  # pollers can add to it meanwhile
            future.result()

    def _poll(self) -> None:
        """SQS makes messages that are not deleted visible again."""
        start_another = functools.cache(self.start)  # once
        queue = dependencies.webhooks_queue
        with log_and_continue():
            while time.monotonic() < self._until and (records := receive(queue, GROUP)):
                response = send(records, self._threads, on_slow=start_another)
                failed = {failure["itemIdentifier"] for failure in response["batchItemFailures"]}
                done = [record for record in records if record["messageId"] not in failed]
                for start in range(0, len(done), BATCH):
                    queue.delete(done[start : start + BATCH])


def receive(queue: WebhooksQueue, count: int) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    while len(records) < count and (more := queue.receive(BATCH)):
        records += more
    return records
