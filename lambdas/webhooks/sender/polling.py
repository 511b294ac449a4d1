"""The loop of an invocation, which receives and sends more messages while it waits for receivers.

Most of the time of an attempt is spent waiting, so a sender can make many at once. Lambda runs only a few senders
at the same time. If each of them only waited for its own batch, two slow receivers would delay all others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from core.aws.batch import BatchResponse, Record, log_and_continue
from core.dependencies import dependencies
from core.webhooks.deliveries.queue import WebhooksQueue
from webhooks.sender.batch import BATCH, send
from webhooks.sender.in_flight import SLOW_SECONDS, InFlight

GROUP = 50  # messages that are sent together; their records are written 25 at a time
POLLERS = 3  # after a full batch, which means that the queue has more
THREADS = 400  # attempts at once; a process in Lambda has 1,024 threads
POLL_SECONDS = 5  # after this time, no more slow attempts start, so that the invocation can end
CHECK_SECONDS = 0.1
# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-short-and-long-polling.html
LONG_POLL_SECONDS = 1


def run(records: Sequence[Record]) -> BatchResponse:
    """Send the batch of an invocation, and what can be received meanwhile."""
    with ThreadPoolExecutor(THREADS) as sends, ThreadPoolExecutor(THREADS) as attempts:
        return Invocation(sends, attempts).run(records)


@dataclass(frozen=True, slots=True)
class Polled:
    """Received messages that are being sent. `started` is a time of `time.monotonic`."""

    messages: int
    started: float
    future: Future[None]

    @property
    def may_be_fast(self) -> bool:
        return not self.future.done() and time.monotonic() - self.started < SLOW_SECONDS


class Invocation:
    """What an invocation is sending. `sends` has a thread for each batch, `attempts` one for each attempt."""

    def __init__(self, sends: ThreadPoolExecutor, attempts: ThreadPoolExecutor) -> None:
        self._sends, self._attempts = sends, attempts
        started = time.monotonic()
        self._in_flight = InFlight(slow_until=started + POLL_SECONDS)
        # By then the slow attempts have ended. What is received last has the same time again.
        self._until = started + POLL_SECONDS + dependencies.settings.webhook_timeout_seconds
        self._futures: list[Future[Any]] = []
        self._polled: list[Polled] = []

    def run(self, records: Sequence[Record]) -> BatchResponse:
        own = self._start(self._send, records)
        if len(records) == BATCH:
            for _ in range(POLLERS):
                self._start(self._empty_queue)
        with log_and_continue():
            self._poll_while_slow()
        for future in self._futures:
            future.result()
        response: BatchResponse = own.result()
        return response

    def _start(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future = self._sends.submit(work, *arguments)
        self._futures.append(future)
        return future

    def _empty_queue(self) -> None:
        """Send group after group."""
        with log_and_continue():
            while time.monotonic() < self._until and (received := receive(dependencies.webhooks_queue)):
                self._send_and_delete(received)

    def _poll_while_slow(self) -> None:
        """While an attempt is slow, send what comes to the queue, without waiting for it."""
        while time.monotonic() < self._until:
            running = [future for future in self._futures if not future.done()]
            if not running:
                return
            if not (self._in_flight.has_slow and self._has_room):
                wait(running, CHECK_SECONDS, FIRST_COMPLETED)
            elif received := receive(dependencies.webhooks_queue, wait_seconds=LONG_POLL_SECONDS):
                future = self._start(self._send_and_delete, received)
                self._polled.append(Polled(len(received), time.monotonic(), future))

    @property
    def _has_room(self) -> bool:
        """Whether there are threads for another group. Fast attempts do not wait for threads, but for the CPU."""
        fast = sum(each.messages for each in self._polled if each.may_be_fast)
        return fast + GROUP <= POLLERS * GROUP and self._in_flight.total + GROUP <= THREADS

    def _send(self, records: Sequence[Record]) -> BatchResponse:
        return send(records, threads=self._attempts, in_flight=self._in_flight)

    def _send_and_delete(self, records: Sequence[Record]) -> None:
        """SQS makes messages that are not deleted visible again."""
        with log_and_continue():
            failed = {failure["itemIdentifier"] for failure in self._send(records)["batchItemFailures"]}
            done = [record for record in records if record["messageId"] not in failed]
            for start in range(0, len(done), BATCH):
                dependencies.webhooks_queue.delete(done[start : start + BATCH])


def receive(queue: WebhooksQueue, *, wait_seconds: int = 0) -> list[dict[str, Any]]:
    """Up to GROUP messages, as long as the queue has more."""
    records = queue.receive(BATCH, wait_seconds=wait_seconds)
    while 0 < len(records) < GROUP and (more := queue.receive(BATCH)):
        records += more
    return records
