"""Progress of jobs (core.jobs.progress)."""

from __future__ import annotations

import itertools
import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.jobs import Job
from core.jobs.progress import EVENT_SECONDS
from kinds.replay.kind import REPLAY
from tests.unit.core.jobs.conftest import Bench
from tests.unit.examples import replay


def test_expected_batches(cloud_bench: Bench) -> None:
    """The number of batches is known before the first is done; the only batch logs no progress."""
    store = cloud_bench.store
    subject = cloud_bench.submitted()
    store.progress.expect_batches(subject, 1)
    assert store.snapshot(subject.job_id, owner="ana").progress == (0, 1)
    cloud_bench.clock.now += 10 * EVENT_SECONDS
    store.progress.mark_batch(subject, 0, total=1)
    store.progress.expect_batches(subject, 1)
    assert store.snapshot(subject.job_id, owner="ana").progress == (1, 1)
    assert [event.name for event in store.log.read(subject.job_id)] == ["document.uploaded"]


def test_batch_counts_once(bench: Bench) -> None:
    """A batch whose message is duplicated is counted once."""
    subject = bench.submitted()
    for batch in (2, 0, 2, 2, 0):
        bench.store.progress.mark_batch(subject, batch, total=3)
    assert bench.store.snapshot(subject.job_id, owner="ana").progress == (2, 3)


def test_interval_of_events(bench: Bench) -> None:
    """Progress is logged at most every five seconds, with the numbers of that time."""
    subject = bench.submitted()
    for batch in range(100):
        bench.clock.now += 0.25
        bench.store.progress.mark_batch(subject, batch, total=100)
    reports = [json.loads(event.body) for event in bench.store.log.read(subject.job_id)][1:]
    times = [datetime.fromisoformat(report["timestamp"]).timestamp() for report in reports]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert 4 <= len(reports) <= 6
    assert min(gaps) > EVENT_SECONDS - 1
    assert [report["done"] for report in reports] == sorted({report["done"] for report in reports})
    assert all(report["total"] == 100 for report in reports)


def test_one_writer_reports(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two concurrent workers, one logs the progress."""
    subject = bench.submitted()
    bench.store.progress.mark_batch(subject, 0, total=3)
    bench.clock.now += EVENT_SECONDS
    real = bench.table.update_item

    def update_item(**request: Any) -> Any:
        monkeypatch.setattr(bench.table, "update_item", real)
        answer = real(**request)
        bench.other_store.progress.mark_batch(subject, 2, total=3)
        return answer

    monkeypatch.setattr(bench.table, "update_item", update_item)
    bench.store.progress.mark_batch(subject, 1, total=3)
    assert bench.log(subject.job_id) == ["uploaded", "progressed"]
    assert bench.store.snapshot(subject.job_id, owner="ana").progress == (3, 3)


def save(bench: Bench, subject: Job, done: int, cursor: str | None, was: str | None) -> bool:
    return bench.store.progress.save(subject, done=done, total=9, cursor=cursor, was=was)


def test_save_and_load(cloud_bench: Bench) -> None:
    """Progress with a cursor is saved as numbers, until the cursor is None."""
    bench, subject = cloud_bench, cloud_bench.store.submit(REPLAY, replay()).job
    assert bench.store.progress.load(subject.job_id) is None
    assert save(bench, subject, 4, cursor="c1", was=None)
    assert bench.store.progress.load(subject.job_id) == (4, 9, "c1")
    assert bench.store.snapshot(subject.job_id, owner="ana").progress == (4, 9)
    assert save(bench, subject, 9, cursor=None, was="c1")
    assert bench.store.progress.load(subject.job_id) == (9, 9, None)
    assert bench.store.snapshot(subject.job_id, owner="ana").progress == (9, 9)
    item = bench.item(f"JOB#{subject.job_id}", "PROGRESS")
    assert item is not None
    assert item["expires_at"] == subject.expires_at


@pytest.mark.parametrize("end", [None, "c2"], ids=["at the end", "on the way"])
def test_outdated_cursor(cloud_bench: Bench, end: str | None) -> None:
    """A worker whose cursor is outdated writes nothing, and gets False."""
    bench, subject = cloud_bench, cloud_bench.store.submit(REPLAY, replay()).job
    assert save(bench, subject, 4, cursor="c1", was=None)
    assert save(bench, subject, 6, cursor=end, was="c1")
    for was in (None, "c1", "c0", ""):
        assert not save(bench, subject, 1, cursor="c3", was=was)
    assert bench.store.progress.load(subject.job_id) == (6, 9, end)


@given(pages=st.integers(1, 5), moves=st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=40))
def test_concurrent_workers(pages: int, moves: list[tuple[int, bool]]) -> None:
    """With any interleaving of workers, each page is saved once and in order."""
    bench = Bench()
    subject = bench.store.submit(REPLAY, replay()).job
    cursors = [None, *(str(page) for page in range(1, pages)), None]
    read: list[tuple[int, int, str | None] | None] = [None] * 3
    noted: list[int] = []
    for worker, reads in moves:
        if reads:
            read[worker] = bench.store.progress.load(subject.job_id)
            continue
        done, _, was = read[worker] or (0, pages, None)
        if done == pages:
            continue
        if bench.store.progress.save(subject, done=done + 1, total=pages, cursor=cursors[done + 1], was=was):
            noted.append(done + 1)
        assert bench.store.snapshot(subject.job_id, owner="ana").progress == (noted[-1], pages)
    assert noted == list(range(1, len(noted) + 1))
