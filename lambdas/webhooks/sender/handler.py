"""Makes the attempts that the webhooks queue asks for, side by side, and plans what follows from each."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from core.aws.batch import BatchResponse, Record, log_and_continue, process, receives
from core.dependencies import dependencies
from core.log import logger
from core.webhooks.deliveries.health import AttemptOutcome
from core.webhooks.deliveries.queue import Message, WebhooksQueue
from core.webhooks.deliveries.store import Attempt, Delivery
from webhooks.sender.attempt import make_attempt, next_wait
from webhooks.sender.deferral import is_deferred
from webhooks.sender.destinations import Destination, DestinationKey, look_up
from webhooks.sender.endpoint_disabling import judge, record_health
from webhooks.sender.group import Candidate, send_together

BATCH = 10  # as many as SQS hands out at once; all are sent at once, so a slow receiver holds up nobody else's
GROUP = 50  # records are written 25 at a time
DRAINS, MAX_DRAINS = 3, 8
DRAIN_SECONDS = 10  # after which one more group, begun at the last moment, still ends within the function's time


class DeliveryInHand(Exception):
    """Another sender is at it. The message comes again, in case that one dies."""


def handler(event: dict[str, Any], context: Any) -> BatchResponse:
    """A full batch means that more is waiting: more is taken beside it, as most of the time is spent waiting."""
    records = event["Records"]
    if len(records) < BATCH:
        return send(records)
    with ThreadPoolExecutor(MAX_DRAINS * (GROUP + 1) + BATCH) as threads:
        drains = Drains(threads, until=time.monotonic() + DRAIN_SECONDS)
        drains.begin(DRAINS)
        answer = send(records, threads)
        drains.join()
    return answer


class Drains:
    """Threads that take groups from the queue until it is empty or the time is up.

    Where a group is kept waiting by a slow receiver, another drain goes on in its place.
    """

    def __init__(self, threads: Executor, *, until: float) -> None:
        self._threads, self._until = threads, until
        self._begun: list[Future[None]] = []

    def begin(self, count: int = 1) -> None:
        for _ in range(min(count, MAX_DRAINS - len(self._begun))):
            self._begun.append(self._threads.submit(self._drain))

    def join(self) -> None:
        for future in self._begun:  # which grows meanwhile
            future.result()

    def _drain(self) -> None:
        """What fails comes again by itself."""
        relieve = functools.cache(self.begin)  # once
        queue = dependencies.webhooks_queue
        with log_and_continue():
            while time.monotonic() < self._until and (records := take(queue, GROUP)):
                failed = {
                    failure["itemIdentifier"]
                    for failure in send(records, self._threads, relieve)["batchItemFailures"]
                }
                done = [record for record in records if record["messageId"] not in failed]
                for start in range(0, len(done), BATCH):
                    queue.delete(done[start : start + BATCH])


def take(queue: WebhooksQueue, count: int) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    while len(records) < count and (more := queue.receive(BATCH)):
        records += more
    return records


def send(
    records: Sequence[Record], threads: Executor | None = None, relieve: Callable[[], None] = lambda: None
) -> BatchResponse:
    """Together where there are threads for that. `relieve` is called while a receiver takes its time."""
    destinations = look_up(readable(records))
    alone = functools.partial(handle, destinations=destinations)
    if threads is None:
        answer = process({"Records": records}, alone, workers=BATCH)
    else:
        answer = send_together(
            records, destinations, threads=threads, alone=alone, conclude=conclude, relieve=relieve
        )
    for key, destination in destinations.items():
        if destination.outcomes:
            record_health(key, destination)
    return answer


def readable(records: Iterable[Record]) -> Iterator[Message]:
    """The messages of a batch, without what is none: that fails by itself, later."""
    for record in records:
        with suppress(ValueError, TypeError):
            yield Message.parse(record["body"])


def handle(record: Record, *, destinations: dict[DestinationKey, Destination]) -> None:
    """One message by itself."""
    message = Message.parse(record["body"])
    destination = destinations[message.owner, message.destination]
    if is_deferred(message, destination):
        return
    claimed = dependencies.deliveries.claim(message.delivery_id, attempts=message.attempts, manual=message.manual)
    if claimed is None:
        look_again(record, message, destination)
    elif destination.endpoint:
        attempt_and_record(claimed, Candidate(record, message, destination.endpoint, destination))


def look_again(record: Record, message: Message, destination: Destination) -> None:
    """What cannot be claimed is done, or in hand, or was left half done by a sender that died."""
    delivery = dependencies.deliveries.get(message.delivery_id)
    if delivery is None:
        return
    if delivery.attempts == message.attempts and delivery.lease_until > time.time():
        raise DeliveryInHand(delivery.delivery_id)
    if receives(record) > 1:
        dependencies.after_attempt.follow_up(delivery)
        last, endpoint = delivery.last_attempt, destination.endpoint
        if last and endpoint and endpoint.updated_at <= last.at:
            judge(delivery, endpoint, destination, status=last.status)


def attempt_and_record(claimed: Delivery, candidate: Candidate) -> None:
    message, endpoint, destination = candidate.message, candidate.endpoint, candidate.destination
    if destination.unreadable:
        raise destination.unreadable
    attempt = make_attempt(claimed, endpoint, destination, trigger=_trigger(message))
    recorded = dependencies.deliveries.record(
        claimed, attempt, wait=next_wait(claimed, attempt), chained=endpoint.ordered
    )
    if recorded is None:
        logger.error("claim lost", delivery_id=claimed.delivery_id)
        return
    conclude(candidate, recorded, attempt)


def _trigger(message: Message) -> str:
    return "manual" if message.manual else "probe" if message.probe else "automatic"


def conclude(candidate: Candidate, recorded: Delivery, attempt: Attempt) -> None:
    """What follows from an attempt that is written down."""
    ended, probe = not recorded.is_open, candidate.message.probe
    candidate.destination.outcomes.append(AttemptOutcome(time.time(), attempt.succeeded, ended=ended, probe=probe))
    logger.info(
        "webhook attempt",
        delivery_id=recorded.delivery_id,
        attempt=attempt.number,
        status=attempt.status,
        error_class=attempt.error,
        duration_ms=attempt.duration_ms,
    )
    dependencies.after_attempt.follow_up(recorded)
    judge(recorded, candidate.endpoint, candidate.destination, status=attempt.status)
