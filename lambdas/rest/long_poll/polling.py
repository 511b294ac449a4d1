"""Reads again and again until there is something to return, or the time is up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from core.events import Event
from core.http import matches
from core.jobs import Snapshot, views
from core.webhooks.deliveries.model import Delivery

FIRST_INTERVAL_SECONDS, GROWTH, LAST_INTERVAL_SECONDS = 0.2, 1.5, 0.9
T = TypeVar("T")


def until_any(
    read: Callable[[], list[Event]],
    seconds: float,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> list[Event]:
    """Read until there are events or the time is up."""
    return next(filter(None, _reads(read, seconds, clock=clock, sleep=sleep)), [])


def until_changed(
    read: Callable[[], Snapshot],
    known: str | None,
    seconds: float,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Snapshot:
    """Read until the job's ETag differs from `known` (or the first), the job has ended, or the time is up."""
    for snapshot in _reads(read, seconds, clock=clock, sleep=sleep):
        known = known or views.etag(snapshot)
        if snapshot.job.is_final or not matches(known, views.etag(snapshot)):
            break
    return snapshot


def until_ended(
    read: Callable[[], Delivery | None],
    seconds: float,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> bool:
    """Read until the delivery exists and has ended; False if the time is up before."""
    deliveries = _reads(read, seconds, clock=clock, sleep=sleep)
    return any(delivery is not None and not delivery.is_open for delivery in deliveries)


def _reads(
    read: Callable[[], T], seconds: float, *, clock: Callable[[], float], sleep: Callable[[float], None]
) -> Iterator[T]:
    """The results of reads at growing intervals of less than a second, until the time is up."""
    end, interval = clock() + seconds, FIRST_INTERVAL_SECONDS
    yield read()
    while clock() < end:
        sleep(min(interval, max(0.0, end - clock())))
        interval = min(LAST_INTERVAL_SECONDS, interval * GROWTH)
        yield read()
