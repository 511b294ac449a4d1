"""Logs of jobs (core.jobs.event_log)."""

from __future__ import annotations

import pytest

from core.jobs import Job
from core.jobs.machine import report_progress
from tests.simulated_cloud.calls import Calls
from tests.simulated_cloud.clock import Clock
from tests.unit.core.jobs.conftest import Bench, report_progress_now


def test_read(cloud_bench: Bench) -> None:
    """Events after a sequence are in order, up to the limit."""
    store, subject = cloud_bench.store, cloud_bench.submitted()
    for number in range(12):
        store.apply(subject.job_id, report_progress(number, 12))
    report_progress_now(cloud_bench, subject)
    sequences = [event.sequence for event in store.log.read(subject.job_id)]
    assert sequences == list(range(1, 15))
    assert [event.sequence for event in store.log.read(subject.job_id, after=9)] == [10, 11, 12, 13, 14]
    assert [event.sequence for event in store.log.read(subject.job_id, after=2, limit=3)] == [3, 4, 5]
    assert store.log.read(subject.job_id, after=14) == []
    assert store.log.read(subject.job_id, after=10**9) == []


def logged(bench: Bench, count: int) -> Job:
    """A job with this many events."""
    subject = bench.submitted()
    for done in range(count - 1):
        bench.store.apply(subject.job_id, report_progress(done, count))
    return subject


@pytest.mark.parametrize("page", [1, 2, 5, 1000])
def test_read_all(cloud_bench: Bench, page: int) -> None:
    """All events of the job are read, in order, over any number of pages."""
    subject = logged(cloud_bench, 5)
    logged(cloud_bench, 2)
    found = list(cloud_bench.store.log.read_all(subject.job_id, page_size=page))
    assert [event.sequence for event in found] == [1, 2, 3, 4, 5]
    assert found == cloud_bench.store.log.read(subject.job_id)
    assert list(cloud_bench.store.log.read_all("job_none", page_size=page)) == []


def test_expired_log(cloud_bench: Bench) -> None:
    """An expired job has no events."""
    subject = logged(cloud_bench, 3)
    cloud_bench.clock.now = subject.expires_at
    assert list(cloud_bench.store.log.read_all(subject.job_id, page_size=1)) == []


@pytest.mark.parametrize("sequence", [1, 2, 3, 25, 45, 99])
def test_read_backwards(cloud_bench: Bench, sequence: int) -> None:
    """The events before a sequence are read, latest first, over several pages, without other items."""
    subject = logged(cloud_bench, 45)
    found = [event.sequence for event in cloud_bench.store.log.read_backwards(subject.job_id, before=sequence)]
    assert found == list(range(min(sequence - 1, 45), 0, -1))


def test_read_backwards_is_lazy(cloud_bench: Bench) -> None:
    """Reading one event reads one page."""
    subject = logged(cloud_bench, 45)
    calls = Calls(Clock())
    with calls.intercepted():
        assert next(cloud_bench.store.log.read_backwards(subject.job_id, before=45)).sequence == 44
    assert [call.operation for call in calls.log] == ["Query"]
    assert calls.log[0].params["ConsistentRead"]
