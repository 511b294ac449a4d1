"""Sends many messages together: their deliveries are claimed together, and recorded together as attempts end.

Two writes per delivery through boto3 take four times the CPU of the rest of the delivery (docs/decisions.md). So
the claims of a group are one transaction, and its records are batches. Messages that need more checks are sent
singly.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from core.aws.batch import Failures, Record
from core.dependencies import dependencies
from core.log import logger
from core.webhooks.deliveries.bulk import Recording
from core.webhooks.deliveries.model import Attempt, Delivery
from core.webhooks.deliveries.queue import Message
from core.webhooks.endpoints.model import Endpoint
from core.webhooks.transport.lookups import LookupsBusy
from webhooks.sender.attempt import make_attempt, next_wait
from webhooks.sender.deferral import put_back
from webhooks.sender.destinations import Destination, Destinations
from webhooks.sender.in_flight import SLOW_SECONDS, InFlight, NoRoom, Running
from webhooks.sender.received import Received
from webhooks.sender.single import finish_attempt, send_single

THREAD_CHECK_SECONDS = 0.004  # if threads end fewer attempts in this time, they wait for their receivers
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
    in_flight: InFlight,
) -> None:
    """`threads` has room for an attempt per message."""
    found = candidates(received, destinations)
    full = [candidate for candidate in found.values() if in_flight.is_full(candidate.destination.host)]
    with failures.of(*(candidate.record for candidate in full)):
        put_back([found.pop(candidate.message.delivery_id).message for candidate in full])
    claimed = claim(found)
    grouped = {candidate.record["messageId"] for candidate in full + [candidate for candidate, _ in claimed]}
    rest = [each for each in received if each.record["messageId"] not in grouped]
    single = [threads.submit(send_single, each, destinations, failures, in_flight) for each in rest]
    for made in attempt_concurrently(threads, claimed, in_flight):
        record_group(made, failures)
    for future in single:
        future.result()


def candidates(received: Sequence[Received], destinations: Destinations) -> dict[str, Candidate]:
    """By delivery id: the messages that nothing can defer but a lack of room, each delivery once."""
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
    if destination.secrets_error or destination.health.is_open or destination.host.health.is_open:
        return None
    if message.manual or message.follows:
        return None
    return Candidate(received.record, message, endpoint, destination)


def claim(candidates: Mapping[str, Candidate]) -> list[Claimed]:
    wanted = {identifier: candidate.message.attempts for identifier, candidate in candidates.items()}
    claimed = dependencies.bulk.claim_all(wanted)
    return [(candidates[identifier], delivery) for identifier, delivery in claimed.items()]


def attempt_concurrently(
    threads: Executor, claimed: Sequence[Claimed], in_flight: InFlight
) -> Iterator[list[Made]]:
    """Make these attempts; yields those that have ended, every FLUSH_SECONDS.

    Threads slow each other down if all receivers respond at once. So it starts with one thread, and doubles the
    number each time that the running ones are found to wait for their receivers.
    """
    waiting = Waiting(claimed, in_flight)
    made, all_made, workers = list[Made](), threading.Event(), list[None]()

    def work(taken: tuple[Claimed, Running] | None) -> None:
        while taken:
            each, running = taken
            made.append((each, attempt(each)))
            in_flight.end(running)
            if len(made) == len(claimed):
                all_made.set()
            taken = waiting.take()
        workers.pop()

    seen = yielded = 0
    flushed = time.monotonic()
    while yielded < len(claimed):
        if waiting and len(made) - seen <= len(workers):
            for _ in range(max(1, len(workers))):
                taken = waiting.take()
                if taken is None:
                    break
                workers.append(None)
                threads.submit(work, taken)
        seen = len(made)
        if waiting:
            made += [(each, failed(NoRoom())) for each in waiting.given_up()]
        all_made.wait(THREAD_CHECK_SECONDS if waiting else FLUSH_SECONDS)
        if len(made) == len(claimed) or time.monotonic() - flushed > FLUSH_SECONDS:
            ended, flushed = made[yielded:], time.monotonic()
            yielded += len(ended)
            yield ended


class Waiting:
    """Claimed deliveries whose attempts have not been started. Thread-safe."""

    def __init__(self, claimed: Sequence[Claimed], in_flight: InFlight) -> None:
        self._in_flight, self._lock = in_flight, threading.Lock()
        self._rest = list(claimed)
        self._taken_at = time.monotonic()

    def __bool__(self) -> bool:
        return bool(self._rest)

    def take(self) -> tuple[Claimed, Running] | None:
        """The next one that there is room for, which is started with this."""
        with self._lock:
            without_room = set[tuple[str, str]]()
            for position, each in enumerate(self._rest):
                host = each[0].destination.host
                if (host.owner, host.name) in without_room or host.is_failing:
                    continue
                if running := self._in_flight.start(host):
                    del self._rest[position]
                    self._taken_at = time.monotonic()
                    return each, running
                without_room.add((host.owner, host.name))
        return None

    def given_up(self) -> list[Claimed]:
        """Removes and returns those of hosts that fail; all, if there has been no room for SLOW_SECONDS."""
        with self._lock:
            is_stuck = time.monotonic() - self._taken_at > SLOW_SECONDS
            rest, self._rest = self._rest, []
            given_up = list[Claimed]()
            for each in rest:
                (given_up if is_stuck or each[0].destination.host.is_failing else self._rest).append(each)
            return given_up


def attempt(claimed: Claimed) -> Future[Attempt]:
    """An ended future with the attempt or the exception, which is raised when the attempt is recorded."""
    candidate, delivery = claimed
    try:
        made = make_attempt(delivery, candidate.endpoint, candidate.destination, trigger="automatic")
    except BaseException as error:
        return failed(error)
    candidate.destination.host.note(made, probe=candidate.message.host_probe)
    future = Future[Attempt]()
    future.set_result(made)
    return future


def failed(error: BaseException) -> Future[Attempt]:
    future = Future[Attempt]()
    future.set_exception(error)
    return future


def record_group(made: Sequence[Made], failures: Failures) -> None:
    """In one batch. If that fails, each attempt is recorded singly."""
    recordings: list[tuple[Candidate, Recording]] = []
    give_back([claimed for claimed, future in made if is_given_back(future)], failures)
    for (candidate, delivery), future in made:
        if is_given_back(future):
            continue
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


def is_given_back(future: Future[Attempt]) -> bool:
    return isinstance(future.exception(), (NoRoom, LookupsBusy))


def give_back(claimed: Sequence[Claimed], failures: Failures) -> None:
    """Their attempts have not been made, and their claims end."""
    with failures.of(*(candidate.record for candidate, _ in claimed)):
        for _, delivery in claimed:
            dependencies.deliveries.release(delivery)
        put_back([candidate.message for candidate, _ in claimed])


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
