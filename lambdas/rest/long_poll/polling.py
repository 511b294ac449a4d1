"""Reads again and again until there is something to return, or the time is up.

If the first read does not suffice, `hold` is entered. If that returns False, there is no second read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing
from typing import TypeVar

from core.http import matches
from core.jobs import Snapshot, views
from core.webhooks.deliveries.model import Delivery

FIRST_INTERVAL_SECONDS, GROWTH, LAST_INTERVAL_SECONDS = 0.2, 1.5, 0.9
T = TypeVar("T")


def until_any(
    read: Callable[[], list[T]],
    seconds: float,
    *,
    hold: AbstractContextManager[bool],
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> list[T]:
    """Read until there is something or the time is up."""
    with closing(_reads(read, seconds, hold=hold, clock=clock, sleep=sleep)) as found:
        return next(filter(None, found), [])


def until_changed(
    read: Callable[[], Snapshot],
    known: str | None,
    seconds: float,
    *,
    hold: AbstractContextManager[bool],
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Snapshot:
    """Read until the job's ETag differs from `known` (or the first), the job has ended, or the time is up."""
    with closing(_reads(read, seconds, hold=hold, clock=clock, sleep=sleep)) as snapshots:
        for snapshot in snapshots:
            known = known or views.etag(snapshot)
            if snapshot.job.is_final or not matches(known, views.etag(snapshot)):
                break
    return snapshot


def until_ended(
    read: Callable[[], Delivery | None],
    seconds: float,
    *,
    hold: AbstractContextManager[bool],
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> bool:
    """Read until the delivery exists and has ended; False if the time is up before."""
    with closing(_reads(read, seconds, hold=hold, clock=clock, sleep=sleep)) as deliveries:
        return any(delivery is not None and not delivery.is_open for delivery in deliveries)


def _reads(
    read: Callable[[], T],
    seconds: float,
    *,
    hold: AbstractContextManager[bool],
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Generator[T, None, None]:
    """The results of reads at growing intervals of less than a second, until the time is up."""
    end, interval = clock() + seconds, FIRST_INTERVAL_SECONDS
    yield read()
    if seconds <= 0:
        return
    with hold as may_wait:
        while may_wait and clock() < end:
            sleep(min(interval, max(0.0, end - clock())))
            interval = min(LAST_INTERVAL_SECONDS, interval * GROWTH)
            yield read()
