"""Lists of jobs (core.jobs.listing)."""

from __future__ import annotations

from typing import Any

import pytest
from ulid import ULID

from core import events, ids
from core.jobs import Job, cancel
from tests.unit.core.jobs.conftest import Bench
from tests.unit.examples import NOW


def test_pages(cloud_bench: Bench) -> None:
    """Pages contain each job of the owner once, newest first."""
    store = cloud_bench.store
    made = [cloud_bench.submitted(job_id=f"job_{number:026d}").job_id for number in range(7)]
    cloud_bench.submitted(owner="ben", job_id=f"job_{3:025d}Z")
    found: list[str] = []
    cursor: str | None = None
    for expected in (3, 3, 1):
        page, cursor = store.listing.page("ana", cursor=cursor, limit=3)
        assert len(page) == expected
        found += [subject.job_id for subject in page]
    assert cursor is None
    assert found == made[::-1]


def test_filtered_pages(bench: Bench) -> None:
    """A page is filled with wanted jobs, however many others are between them."""
    made = [bench.submitted(job_id=f"job_{number:026d}").job_id for number in range(9)]
    for job_id in made[::3]:
        bench.store.apply(job_id, cancel)

    def canceled_only(subject: Job) -> bool:
        return subject.status == "canceled"

    page, cursor = bench.store.listing.page("ana", limit=2, wanted=canceled_only)
    assert [subject.job_id for subject in page] == [made[6], made[3]]
    rest, end = bench.store.listing.page("ana", cursor=cursor, limit=2, wanted=canceled_only)
    assert ([subject.job_id for subject in rest], end) == ([made[0]], None)


def test_max_examined(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page reads at most MAX_EXAMINED jobs. It can be short or empty and have a cursor."""
    monkeypatch.setattr("core.jobs.listing.MAX_EXAMINED", 3)
    made = [bench.submitted(job_id=f"job_{number:026d}").job_id for number in range(10)]
    bench.store.apply(made[0], cancel)
    found: list[str] = []
    cursor: str | None = None
    pages = 0
    while pages == 0 or cursor:
        page, cursor = bench.store.listing.page(
            "ana", cursor=cursor, limit=5, wanted=lambda subject: subject.is_final
        )
        found += [subject.job_id for subject in page]
        pages += 1
    assert found == [made[0]]
    assert pages == 4


def test_overdue(cloud_bench: Bench) -> None:
    """Open jobs of all shards are overdue after their deadline; final jobs are not."""
    late = {cloud_bench.submitted(deadline=events.timestamp(NOW + 10)).job_id for _ in range(12)}
    cloud_bench.submitted(deadline=events.timestamp(NOW + 11))
    ended = cloud_bench.submitted(deadline=events.timestamp(NOW + 10)).job_id
    cloud_bench.store.apply(ended, cancel)
    cloud_bench.clock.now = NOW + 9
    assert list(cloud_bench.store.listing.overdue()) == []
    cloud_bench.clock.now = NOW + 10.5
    assert set(cloud_bench.store.listing.overdue()) == late


def at(bench: Bench, *moments: float, **facts: Any) -> list[Job]:
    """Jobs that were submitted this many seconds after NOW."""
    made = []
    for moment in moments:
        job_id = "job_" + str(ULID.from_timestamp(int((NOW + moment) * 1000)))
        made.append(bench.submitted(job_id=job_id, **facts))
    return made


def test_oldest_first(cloud_bench: Bench) -> None:
    """An owner's jobs between two times are listed, oldest first: the lower bound counts, the upper does not."""
    jobs = at(cloud_bench, 0, 1, 2, 3, 4)
    at(cloud_bench, 2, owner="ben")
    span = {"after": ids.floor("job", NOW + 1), "before": ids.floor("job", NOW + 4)}
    found = list(cloud_bench.store.listing.oldest_first("ana", **span))
    assert [each.job_id for each in found] == [each.job_id for each in jobs[1:4]]
    assert cloud_bench.store.listing.count("ana", **span) == 3


def test_oldest_first_after_a_job(cloud_bench: Bench) -> None:
    """The jobs after one of them are listed, each once, over several pages."""
    jobs = [each.job_id for each in at(cloud_bench, *range(120))]
    before = ids.floor("job", NOW + 500)
    found = [each.job_id for each in cloud_bench.store.listing.oldest_first("ana", after=jobs[9], before=before)]
    assert found == jobs[10:]
    assert list(cloud_bench.store.listing.oldest_first("ana", after=jobs[-1], before=before)) == []


def test_oldest_first_without_expired_jobs(cloud_bench: Bench) -> None:
    """Expired jobs are omitted, although the index contains them."""
    at(cloud_bench, 0, expires_at=int(NOW) + 5)
    (kept,) = at(cloud_bench, 1)
    cloud_bench.clock.now += 5
    span = {"after": ids.floor("job", NOW - 1), "before": ids.floor("job", NOW + 9)}
    assert [each.job_id for each in cloud_bench.store.listing.oldest_first("ana", **span)] == [kept.job_id]
    assert cloud_bench.store.listing.count("ana", **span) == 2
