"""Sends the messages of one batch."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor

from core.aws.batch import BatchResponse, Failures, Record
from webhooks.sender.destinations import read_destinations, record_outcomes
from webhooks.sender.group import send_group
from webhooks.sender.in_flight import InFlight
from webhooks.sender.received import parse
from webhooks.sender.single import send_single

BATCH = 10  # the most that SQS hands over at once


def send(records: Sequence[Record], *, threads: Executor, in_flight: InFlight) -> BatchResponse:
    """Make the attempts, as a group if there are enough. `threads` must have room for an attempt per record."""
    failures = Failures(records)
    received = parse(records, failures)
    destinations = read_destinations(each.message for each in received)
    if len(records) < BATCH:
        single = [threads.submit(send_single, each, destinations, failures, in_flight) for each in received]
        for future in single:
            future.result()
    else:
        send_group(received, destinations, failures, threads=threads, in_flight=in_flight)
    record_outcomes(destinations)
    return failures.response
