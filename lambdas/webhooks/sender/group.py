"""Many attempts at once: claimed together, made side by side, and written down together as they end.

Two writes a delivery through boto3 take four times the CPU of the delivery itself (docs/decisions.md), so a sender
with much to do groups them: the claims in one transaction, the records in batches. Whatever needs more care than
that goes one by one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass

from core.aws.batch import BatchResponse, Failures, Record
from core.dependencies import dependencies
from core.log import logger
from core.webhooks.deliveries.bulk import Recording
from core.webhooks.deliveries.queue import Message
from core.webhooks.deliveries.store import Attempt, Delivery
from core.webhooks.endpoints.store import Endpoint
from webhooks.sender.attempt import make_attempt, next_wait
from webhooks.sender.destinations import Destination, DestinationKey

PATIENCE_SECONDS = 0.004  # after which threads that have finished no more than one attempt each count as waiting
SLOW_SECONDS = 0.5
FLUSH_SECONDS = 0.05  # how long what is done waits for what takes longer, to be written down with it


@dataclass(frozen=True, slots=True)
class Candidate:
    """A message, and where it leads."""

    record: Record
    message: Message
    endpoint: Endpoint
    destination: Destination


Claimed = tuple[Candidate, Delivery]
Made = tuple[Claimed, Future[Attempt]]
Alone = Callable[[Record], None]
Conclude = Callable[[Candidate, Delivery, Attempt], None]


def send_together(
    records: Sequence[Record],
    destinations: dict[DestinationKey, Destination],
    *,
    threads: Executor,
    alone: Alone,
    conclude: Conclude,
    relieve: Callable[[], None] = lambda: None,
) -> BatchResponse:
    """`alone` makes the attempt of one record, from restraint to record; `conclude` does what follows from one.

    `threads` has room for all the records. `relieve` is called where it takes long.
    """
    failures = Failures(records)

    def one(record: Record) -> None:
        with failures.of(record):
            alone(record)

    claimed, begun = claim(simple(records, destinations)), time.monotonic()
    grouped = {candidate.record["messageId"] for candidate, _ in claimed}
    singly = [threads.submit(one, record) for record in records if record["messageId"] not in grouped]
    for made in side_by_side(threads, claimed):
        write_down(made, failures, conclude)
        if time.monotonic() - begun > SLOW_SECONDS:
            relieve()
    for future in singly:
        future.result()
    return failures.answer


def simple(records: Iterable[Record], destinations: dict[DestinationKey, Destination]) -> dict[str, Candidate]:
    """By delivery: the messages that nothing stands in the way of, so that they need no look of their own."""
    found: dict[str, Candidate] = {}
    for record in records:
        candidate = _prospect(record, destinations)
        if candidate:
            found.setdefault(candidate.message.delivery_id, candidate)
    return found


def _prospect(record: Record, destinations: dict[DestinationKey, Destination]) -> Candidate | None:
    try:
        message = Message.parse(record["body"])
    except (ValueError, TypeError):
        return None
    destination = destinations[message.owner, message.destination]
    endpoint = destination.endpoint
    if (
        endpoint is None
        or not endpoint.enabled
        or endpoint.ordered
        or endpoint.rate_limit
        or destination.unreadable
    ):
        return None
    if message.manual or message.follows or destination.health.is_open:
        return None
    return Candidate(record, message, endpoint, destination)


def claim(candidates: Mapping[str, Candidate]) -> list[Claimed]:
    wanted = {identifier: candidate.message.attempts for identifier, candidate in candidates.items()}
    taken = dependencies.bulk.claim_all(wanted)
    return [(candidates[identifier], delivery) for identifier, delivery in taken.items()]


def side_by_side(threads: Executor, claimed: Sequence[Claimed]) -> Iterator[list[Made]]:
    """Make these attempts; gives what is finished, within FLUSH_SECONDS.

    Threads whose receivers answer at once only stand in each other's way: there is one to begin with, and twice as
    many each time that those at work are found waiting.
    """
    waiting, made, over = deque(claimed), list[Made](), threading.Event()

    def work() -> None:
        with suppress(IndexError):
            while True:
                each = waiting.popleft()
                made.append((each, outcome_of(each)))
                if len(made) == len(claimed):
                    over.set()

    workers = seen = given = 0
    flushed = time.monotonic()
    while given < len(claimed):
        if waiting and len(made) - seen <= workers:
            more = min(workers or 1, len(waiting))
            workers += more
            for _ in range(more):
                threads.submit(work)
        seen = len(made)
        over.wait(PATIENCE_SECONDS)
        if over.is_set() or time.monotonic() - flushed > FLUSH_SECONDS:
            finished, flushed = made[given:], time.monotonic()
            given += len(finished)
            yield finished


def outcome_of(claimed: Claimed) -> Future[Attempt]:
    candidate, delivery = claimed
    future = Future[Attempt]()
    try:
        future.set_result(make_attempt(delivery, candidate.endpoint, candidate.destination, trigger="automatic"))
    except BaseException as error:  # raised where the attempt is written down
        future.set_exception(error)
    return future


def write_down(made: Sequence[Made], failures: Failures, conclude: Conclude) -> None:
    """In one batch; if that fails, one by one, so that no attempt goes unrecorded for another's sake."""
    recordings: list[tuple[Candidate, Recording]] = []
    for (candidate, delivery), future in made:
        with failures.of(candidate.record):
            attempt = future.result()
            recordings.append((candidate, Recording(delivery, attempt, next_wait(delivery, attempt))))
    written = recorded([recording for _, recording in recordings])
    for (candidate, recording), known in zip(recordings, written, strict=True):
        with failures.of(candidate.record):
            done = known or record_alone(recording)
            if done:
                conclude(candidate, done, recording.attempt)


def recorded(recordings: Sequence[Recording]) -> Sequence[Delivery | None]:
    """The deliveries as they are then; None where it is not known whether the attempt is written down."""
    try:
        return dependencies.bulk.record_all(recordings)
    except Exception:
        logger.exception("attempts could not be written down together")
        return [None] * len(recordings)


def record_alone(recording: Recording) -> Delivery | None:
    done = dependencies.deliveries.record(recording.claimed, recording.attempt, wait=recording.wait)
    if done is None:
        logger.error("claim lost", delivery_id=recording.claimed.delivery_id)
    return done
