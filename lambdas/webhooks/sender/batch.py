"""Sends the messages of one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor

from core.aws.batch import BatchResponse, Failures, Record
from webhooks.sender.destinations import read_destinations, record_outcomes
from webhooks.sender.group import send_group
from webhooks.sender.received import parse
from webhooks.sender.single import send_single

BATCH = 10  # the most that SQS hands over at once; all are sent at once, so a slow receiver delays no other


def send(
    records: Sequence[Record], threads: Executor | None = None, *, on_slow: Callable[[], object] = lambda: None
) -> BatchResponse:
    """Make the attempts: as a group if there are `threads`, which must be enough for one attempt per record.

    `on_slow` is called while a receiver of the group takes long.
    """
    failures = Failures(records)
    received = parse(records, failures)
    destinations = read_destinations(each.message for each in received)
    if threads:
        send_group(received, destinations, failures, threads=threads, on_slow=on_slow)
    else:
        with ThreadPoolExecutor(BATCH) as pool:
            list(pool.map(lambda each: send_single(each, destinations, failures), received))
    record_outcomes(destinations)
    return failures.response
