"""Reading until there is a change (rest.long_poll.polling)."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import ids
from core.jobs import Job, Snapshot, views
from core.webhooks.deliveries.model import Delivery, draft
from rest.long_poll.polling import LAST_INTERVAL_SECONDS, until_any, until_changed, until_ended
from tests.unit.examples import NOW, FakeClock, event, job

QUEUED, RUNNING = job(), job(status="running", version=2)


DONE = replace(RUNNING, status="completed", version=3)


class ChangingJob:
    """A job that changes at given times of a clock. A read takes `reading` seconds."""

    def __init__(self, *changes: tuple[float, Job], reading: float = 0.0) -> None:
        self.clock = FakeClock(0.0)
        self.reads: list[float] = []
        self._changes, self._reading = changes, reading

    def read(self) -> Snapshot:
        self.reads.append(self.clock.now)
        seen = [subject for moment, subject in self._changes if moment <= self.clock.now]
        self.clock.now += self._reading
        return Snapshot(seen[-1], None, None)

    def wait(self, seconds: float, known: str | None = None) -> Snapshot:
        return until_changed(
            self.read, known, seconds, hold=nullcontext(True), clock=self.clock, sleep=self.clock.sleep
        )


def test_no_wait() -> None:
    """Without a wait the job is read once."""
    subject = ChangingJob((0, QUEUED))
    assert subject.wait(0).job == QUEUED
    assert (subject.reads, subject.clock.sleeps) == ([0.0], [])


def test_final_job() -> None:
    """A job that has ended is returned at once."""
    subject = ChangingJob((0, DONE))
    assert subject.wait(25, views.etag(Snapshot(DONE, None, None))).job == DONE
    assert subject.clock.sleeps == []


def test_other_etag() -> None:
    """A job with another ETag is returned at once."""
    subject = ChangingJob((0, RUNNING))
    assert subject.wait(25, views.etag(Snapshot(QUEUED, None, None))).job == RUNNING
    assert subject.clock.sleeps == []


@given(st.floats(0.01, 24), st.floats(0, 0.09))
def test_change(moment: float, reading: float) -> None:
    """A change is returned less than a second after it."""
    subject = ChangingJob((0, QUEUED), (moment, RUNNING), reading=reading)
    assert subject.wait(25).job == RUNNING
    assert subject.reads[-1] - moment < 1


@given(st.floats(0, 25), st.floats(0, 0.5))
def test_time_limit(seconds: float, reading: float) -> None:
    """Without a change, no read begins after the time is up."""
    subject = ChangingJob((0, QUEUED), reading=reading)
    assert subject.wait(seconds).job == QUEUED
    assert sum(subject.clock.sleeps) <= seconds + 1e-9
    last_but_one = subject.reads[-2] + reading if len(subject.reads) > 1 else 0
    assert subject.reads[-1] <= max(seconds, last_but_one) + 1e-9


def test_intervals() -> None:
    """Intervals grow from 0.2 to 0.9 seconds, so that 25 seconds take about 30 reads."""
    subject = ChangingJob((0, QUEUED))
    subject.wait(25)
    intervals = subject.clock.sleeps[:-1]
    assert intervals == sorted(intervals)
    assert (intervals[0], intervals[-1]) == (0.2, LAST_INTERVAL_SECONDS)
    assert len(subject.reads) < 35


def test_progress_is_a_change() -> None:
    """Progress is a change, although the job's item is the same."""
    states = iter(
        [Snapshot(RUNNING, (1, 3), None), Snapshot(RUNNING, (1, 3), None), Snapshot(RUNNING, (2, 3), None)]
    )
    clock = FakeClock(0.0)
    found = until_changed(lambda: next(states), None, 25, hold=nullcontext(True), clock=clock, sleep=clock.sleep)
    assert found.progress == (2, 3)


@pytest.mark.parametrize("form", ["{}", "W/{}", '"other", {}', '"other",W/{} ', "*"])
def test_forms_of_if_none_match(form: str) -> None:
    """ETags can be weak, one of several, or a star (RFC 9110)."""
    subject = ChangingJob((0, QUEUED))
    subject.wait(5, form.format(views.etag(Snapshot(QUEUED, None, None))))
    assert subject.clock.now == 5


@given(st.floats(0.01, 24))
def test_new_event(moment: float) -> None:
    """An event is returned less than a second after it."""
    clock, news = FakeClock(0.0), event()
    found = until_any(
        lambda: [news] if clock.now >= moment else [], 25, hold=nullcontext(True), clock=clock, sleep=clock.sleep
    )
    assert found == [news]
    assert moment <= clock.now < moment + 1


def sent(status: str) -> Delivery:
    """A ping's delivery with this status."""
    facts = {"event": "ping", "owner": "ana", "format": "recado", "body": "{}", "status": status}
    return draft(event_id=ids.new("evt"), endpoint_id=WEBHOOK, now=NOW, retention_seconds=60, **facts)


WEBHOOK = ids.new("wh")


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        (None, False),
        ("pending", False),
        ("sending", False),
        ("delivered", True),
        ("failed", True),
        ("canceled", True),
    ],
)
def test_until_ended(status: str | None, ended: bool) -> None:
    """The wait ends when the delivery has ended, and not while it is missing or open."""
    clock = FakeClock(0.0)
    found = sent(status) if status else None
    assert until_ended(lambda: found, 5, hold=nullcontext(True), clock=clock, sleep=clock.sleep) is ended
    assert clock.now == (0 if ended else 5)


@given(st.floats(0.01, 24))
def test_end_of_delivery(moment: float) -> None:
    """The end of a delivery is noticed less than a second after it."""
    clock = FakeClock(0.0)

    def read() -> Delivery | None:
        return sent("delivered") if clock.now >= moment else None

    assert until_ended(read, 25, hold=nullcontext(True), clock=clock, sleep=clock.sleep)
    assert moment <= clock.now < moment + 1
