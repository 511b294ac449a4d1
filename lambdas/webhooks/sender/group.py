"""Sends many messages together: their deliveries are claimed together, and recorded together as attempts end.

Two writes per delivery through boto3 take four times the CPU of the rest of the delivery (docs/decisions.md). So
the claims of a group are one transaction, and its records are batches. Messages that need more checks are sent
singly.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass

from core.aws.batch import Failures, Record
from core.dependencies import dependencies
from core.log import logger
from core.webhooks.deliveries.bulk import Recording
from core.webhooks.deliveries.model import Attempt, Delivery
from core.webhooks.deliveries.queue import Message
from core.webhooks.endpoints.model import Endpoint
from webhooks.sender.attempt import make_attempt, next_wait
from webhooks.sender.destinations import Destination, Destinations
from webhooks.sender.received import Received
from webhooks.sender.single import finish_attempt, send_single

THREAD_CHECK_SECONDS = 0.004  # if threads end fewer attempts in this time, they wait for their receivers
SLOW_SECONDS = 0.5
FLUSH_SECONDS = 0.05  # attempts that have ended wait so long for others, to be recorded with them


@dataclass(frozen=True, slots=True)
class Candidate:
    """A message that can be sent in a group, with its endpoint and destination."""

    record: Record
    message: Message
    endpoint: Endpoint
    destination: Destination


Claimed = tuple[Candidate, Delivery]
Made = tuple[Claimed, Future[Attempt]]


def send_group(
    received: Sequence[Received],
    destinations: Destinations,
    failures: Failures,
    *,
    threads: Executor,
    on_slow: Callable[[], object] = lambda: None,
) -> None:
    """`threads` has room for an attempt per message. `on_slow` is called if some take over SLOW_SECONDS."""
    claimed, started = claim(candidates(received, destinations)), time.monotonic()
    grouped = {candidate.record["messageId"] for candidate, _ in claimed}
    rest = [each for each in received if each.record["messageId"] not in grouped]
    single = [threads.submit(send_single, each, destinations, failures) for each in rest]
    for made in attempt_concurrently(threads, claimed):
        record_group(made, failures)
        if time.monotonic() - started > SLOW_SECONDS:
            on_slow()
    for future in single:
        future.result()


def candidates(received: Sequence[Received], destinations: Destinations) -> dict[str, Candidate]:
    """By delivery id: the messages that nothing can defer, each delivery once."""
    found: dict[str, Candidate] = {}
    for each in received:
        candidate = _candidate(each, destinations)
        if candidate:
            found.setdefault(candidate.message.delivery_id, candidate)
    return found


def _candidate(received: Received, destinations: Destinations) -> Candidate | None:
    message = received.message
    destination = destinations[message.owner, message.destination]
    endpoint = destination.endpoint
    if endpoint is None or not endpoint.enabled or endpoint.ordered or endpoint.rate_limit:
        return None
    if destination.secrets_error or destination.health.is_open or message.manual or message.follows:
        return None
    return Candidate(received.record, message, endpoint, destination)


def claim(candidates: Mapping[str, Candidate]) -> list[Claimed]:
    wanted = {identifier: candidate.message.attempts for identifier, candidate in candidates.items()}
    claimed = dependencies.bulk.claim_all(wanted)
    return [(candidates[identifier], delivery) for identifier, delivery in claimed.items()]


def attempt_concurrently(threads: Executor, claimed: Sequence[Claimed]) -> Iterator[list[Made]]:
    """Make these attempts; yields those that have ended, every FLUSH_SECONDS.

    Threads slow each other down if all receivers respond at once. So it starts with one thread, and doubles the
    number each time that the running ones are found to wait for their receivers.
    """
    rest, made, all_made = deque(claimed), list[Made](), threading.Event()

    def work() -> None:
        with suppress(IndexError):
            while True:
                each = rest.popleft()
                made.append((each, attempt(each)))
                if len(made) == len(claimed):
                    all_made.set()

    workers = seen = yielded = 0
    flushed = time.monotonic()
    while yielded < len(claimed):
        if rest and len(made) - seen <= workers:
            more = min(workers or 1, len(rest))
            workers += more
            for _ in range(more):
                threads.submit(work)
        seen = len(made)
        all_made.wait(THREAD_CHECK_SECONDS)
        if all_made.is_set() or time.monotonic() - flushed > FLUSH_SECONDS:
            ended, flushed = made[yielded:], time.monotonic()
            yielded += len(ended)
            yield ended


def attempt(claimed: Claimed) -> Future[Attempt]:
    """An ended future with the attempt or the exception, which is raised when the attempt is recorded."""
    candidate, delivery = claimed
    future = Future[Attempt]()
    try:
        future.set_result(make_attempt(delivery, candidate.endpoint, candidate.destination, trigger="automatic"))
    except BaseException as error:
        future.set_exception(error)
    return future


def record_group(made: Sequence[Made], failures: Failures) -> None:
    """In one batch. If that fails, each attempt is recorded singly."""
    recordings: list[tuple[Candidate, Recording]] = []
    for (candidate, delivery), future in made:
        with failures.of(candidate.record):
            attempt = future.result()
            recordings.append((candidate, Recording(delivery, attempt, next_wait(delivery, attempt))))
    in_batch = record_all([recording for _, recording in recordings])
    for (candidate, recording), known in zip(recordings, in_batch, strict=True):
        with failures.of(candidate.record):
            recorded = known or record_single(recording)
            if recorded:
                endpoint, destination = candidate.endpoint, candidate.destination
                probe = candidate.message.probe
                finish_attempt(recorded, recording.attempt, endpoint, destination, probe=probe)


def record_all(recordings: Sequence[Recording]) -> Sequence[Delivery | None]:
    """The deliveries afterwards; all None if it is not known which of them have been written."""
    try:
        return dependencies.bulk.record_all(recordings)
    except Exception:
        logger.exception("attempts could not be recorded in a batch")
        return [None] * len(recordings)


def record_single(recording: Recording) -> Delivery | None:
    recorded = dependencies.deliveries.record(recording.claimed, recording.attempt, wait=recording.wait)
    if recorded is None:
        logger.error("claim lost", delivery_id=recording.claimed.delivery_id)
    return recorded
