"""Tombstones of deleted jobs (core.jobs.tombstones)."""

from __future__ import annotations

import pytest

from core.errors import Conflict, JobClosed, JobDeleted, NotFound
from core.jobs import Job, cancel, links, valid_job_id
from core.jobs.tombstones import KEPT, LATE_SECONDS, MIN_SECONDS, RERUN_SECONDS, Tombstones
from tests.unit.core.jobs.conftest import TABLE, Bench
from tests.unit.core.jobs.fault_injection import before_write
from tests.unit.examples import NOW, job


@pytest.fixture
def bench(cloud_bench: Bench) -> Bench:
    return cloud_bench


@pytest.fixture
def tombstones(bench: Bench) -> Tombstones:
    return Tombstones(bench.table, TABLE, clock=bench.clock)


@pytest.fixture
def canceled(bench: Bench) -> Job:
    return bench.store.apply(bench.submitted().job_id, cancel)


def test_mark(bench: Bench, tombstones: Tombstones, canceled: Job) -> None:
    """A deleted job is gone from reads and lists; marking it again returns the same, with the whole job."""
    first, second = (tombstones.mark(canceled.job_id, owner="ana") for _ in range(2))
    assert second == tombstones.find(canceled.job_id)
    for tombstone in (first, second):
        assert tombstone.job is not None
        assert (tombstone.job.input, tombstone.job.status) == (canceled.input, "canceled")
    for read in (bench.store.get, bench.store.snapshot):
        with pytest.raises(JobDeleted):
            read(canceled.job_id, owner="ana")
        with pytest.raises(NotFound) as refused:
            read(canceled.job_id, owner="ben")
        assert refused.type is NotFound
    assert bench.store.listing.page("ana") == ([], None)
    assert bench.store.listing.by_ids([canceled.job_id]) == {}
    assert bench.store.listing.deleted([canceled.job_id, valid_job_id(bench.submitted().job_id)]) == {
        canceled.job_id
    }


def test_open_job(bench: Bench, tombstones: Tombstones) -> None:
    """An open job cannot be deleted, nor one of another owner, nor one that does not exist."""
    open_job = bench.submitted()
    with pytest.raises(Conflict, match=f"POST /jobs/{open_job.job_id}/cancel"):
        tombstones.mark(open_job.job_id, owner="ana")
    for job_id, owner in ((open_job.job_id, "ben"), (open_job.job_id, ""), (job().job_id, "ana")):
        with pytest.raises(NotFound):
            tombstones.mark(job_id, owner=owner)
    assert bench.store.get(open_job.job_id) == open_job
    assert tombstones.find(open_job.job_id) is None


def test_change_under_way(bench: Bench, tombstones: Tombstones, canceled: Job) -> None:
    """A change that read the job before its deletion is not written: the job does not come back."""
    bench.client.plan.append(before_write(lambda: tombstones.mark(canceled.job_id, owner="ana")))
    with pytest.raises(JobClosed):
        bench.store.apply(canceled.job_id, links.replace_key)
    assert tombstones.find(canceled.job_id) is not None


def test_runs(bench: Bench, tombstones: Tombstones, canceled: Job) -> None:
    """It is due until a run has ended, then once more for late writes, and keeps ids only."""
    tombstones.mark(canceled.job_id, owner="ana")
    assert list(tombstones.due()) == []
    for _ in range(3):  # runs that do not end
        bench.clock.now += RERUN_SECONDS + 1
        assert [one.job_id for one in tombstones.due()] == [canceled.job_id]
        assert list(tombstones.due()) == []
    found = tombstones.find(canceled.job_id)
    assert found is not None
    tombstones.end_run(found)
    bench.clock.now += LATE_SECONDS
    assert list(tombstones.due()) == []
    bench.clock.now += 1
    (late,) = tombstones.due()
    assert late.job is None
    tombstones.end_run(late)
    bench.clock.now += 10 * LATE_SECONDS
    assert list(tombstones.due()) == []
    assert set(bench.item(f"JOB#{canceled.job_id}", "META") or {}) == set(KEPT)


def test_expiry(bench: Bench, tombstones: Tombstones) -> None:
    """A tombstone is kept as long as the job, at least for a day. Then the id is unknown."""
    for seconds in (60, 10 * MIN_SECONDS):
        old = bench.store.apply(bench.submitted(expires_at=int(NOW) + seconds).job_id, cancel)
        tombstones.mark(old.job_id, owner="ana")
        item = bench.item(f"JOB#{old.job_id}", "META") or {}
        assert int(item["expires_at"]) == max(int(NOW) + seconds, int(NOW) + MIN_SECONDS)
    bench.clock.now += 11 * MIN_SECONDS
    with pytest.raises(NotFound) as refused:
        bench.store.get(old.job_id)
    assert refused.type is NotFound
