"""Reading again and again, until there is something to answer or the time is up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from core.events import Event
from core.jobs import Snapshot, views
from core.webhooks.deliveries.store import Delivery

FIRST_GAP_SECONDS, GROWTH, LAST_GAP_SECONDS = 0.2, 1.5, 0.9
T = TypeVar("T")


def until_any(
    read: Callable[[], list[Event]],
    seconds: float,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> list[Event]:
    """Read until something has happened, or the time is up."""
    return next(filter(None, _reads(read, seconds, clock=clock, sleep=sleep)), [])


def until_changed(
    read: Callable[[], Snapshot],
    known: str | None,
    seconds: float,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Snapshot:
    """Read until the job differs from what is known, or has ended, or the time is up."""
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
    """Read until the delivery, which may not be there yet, has ended; False if the time is up before."""
    deliveries = _reads(read, seconds, clock=clock, sleep=sleep)
    return any(delivery is not None and not delivery.is_open for delivery in deliveries)


def _reads(
    read: Callable[[], T], seconds: float, *, clock: Callable[[], float], sleep: Callable[[float], None]
) -> Iterator[T]:
    """Read with growing gaps, never more than a second, until the time is up."""
    end, gap = clock() + seconds, FIRST_GAP_SECONDS
    yield read()
    while clock() < end:
        sleep(min(gap, max(0.0, end - clock())))
        gap = min(LAST_GAP_SECONDS, gap * GROWTH)
        yield read()


def matches(known: str, etag: str) -> bool:
    """https://www.rfc-editor.org/rfc/rfc9110#name-if-none-match, compared weakly."""
    offered = [part.strip().removeprefix("W/") for part in known.split(",")]
    return "*" in offered or etag in offered
