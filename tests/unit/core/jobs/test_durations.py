"""Durations of jobs (core.jobs.durations)."""

from __future__ import annotations

from typing import Any

import pytest

from core import events
from core.jobs import Job
from tests.unit.core.jobs.conftest import Bench
from tests.unit.examples import NOW, job, replay


def completed(seconds: float, **facts: Any) -> Job:
    """A completed job with this duration."""
    return job(status="completed", finished_at=events.timestamp(NOW + seconds), **facts)


def test_history(bench: Bench) -> None:
    """The last thirty durations are kept for each owner and kind, in milliseconds, in order."""
    for seconds in range(40):
        bench.store.durations.record(completed(seconds + 0.567))
    bench.store.durations.record(completed(9, owner="ben"))
    bench.store.durations.record(completed(8, kind="replay", input=replay().input))
    assert bench.store.durations.history("ana", "document").seconds == tuple(n + 0.567 for n in range(10, 40))
    assert bench.store.durations.history("ben", "document").seconds == (9,)
    assert bench.store.durations.history("ana", "replay").seconds == (8,)
    assert bench.store.durations.history("ben", "replay").seconds == ()


@pytest.mark.parametrize("facts", [{"status": status} for status in ("failed", "canceled", "running", "queued")])
def test_jobs_without_duration(bench: Bench, facts: dict[str, str]) -> None:
    """Only completed jobs are recorded."""
    bench.store.durations.record(job(finished_at=events.timestamp(NOW + 5), **facts))
    bench.store.durations.record(job(status="completed"))
    assert bench.store.durations.history("ana", "document").seconds == ()


def test_expiry_of_history(bench: Bench) -> None:
    """The item expires with its last job, and is in no index."""
    bench.store.durations.record(completed(5, expires_at=123))
    item = bench.item("OWNER#ana", "DURATIONS#document")
    assert item is not None
    assert (item["expires_at"], item["entity"]) == (123, "durations")
    assert set(item) == {"pk", "sk", "entity", "seconds", "expires_at"}
    assert bench.store.listing.page("ana") == ([], None)
