"""core.webhooks.deliveries.index"""

from __future__ import annotations

from typing import Any

import pytest

from core import events
from core.webhooks.deliveries.model import STATUSES, Delivery
from core.webhooks.deliveries.rows import id_of
from tests.unit.core.webhooks.deliveries.conftest import Bench
from tests.unit.core.webhooks.samples import ENDPOINT, attempt, failure
from tests.unit.examples import NOW

URL = "https://example.com/hook"


def page_through(bench: Bench, limit: int, **options: Any) -> list[Delivery]:
    found, cursor = [], None
    while True:
        page, cursor = bench.index.page("ana", ENDPOINT, limit=limit, cursor=cursor, **options)
        assert len(page) <= limit
        found += page
        if cursor is None:
            return found


@pytest.mark.parametrize("limit", [1, 3, 7, 50, 100])
def test_pages(bench: Bench, limit: int) -> None:
    """Pages of any size contain every delivery of the endpoint once, newest first."""
    made = []
    for _ in range(7):
        bench.clock.now += 1
        made.append(bench.created())
    bench.created(owner="ben")
    bench.created(endpoint_id="default", url=URL)
    assert page_through(bench, limit) == made[::-1]


def test_pages_of_many(bench: Bench) -> None:
    """A page can have more deliveries than one query returns."""
    for _ in range(130):
        bench.clock.now += 0.001
        bench.created()
    found = page_through(bench, 100)
    assert len({subject.delivery_id for subject in found}) == 130
    assert [subject.created_at for subject in found] == sorted((s.created_at for s in found), reverse=True)


def test_filters(bench: Bench) -> None:
    """A page can be limited to a status, an event and a time."""
    old = bench.created(event="document.failed")
    bench.clock.now += 60
    failed = bench.attempted(bench.created(), failure(1), wait=None)
    arrived = bench.attempted(bench.created(event="document.failed"), attempt(1))
    ended = bench.store.end(bench.created().delivery_id, "canceled", attempts=0, reason="deleted")
    by_status = {status: page_through(bench, 10, status=status) for status in STATUSES}
    assert by_status == {
        "pending": [old],
        "sending": [],
        "delivered": [arrived],
        "failed": [failed],
        "discarded": [],
        "canceled": [ended],
    }
    assert page_through(bench, 10, event="document.failed") == [arrived, old]
    assert page_through(bench, 10, status="failed", event="document.failed") == []
    assert old not in page_through(bench, 10, since=events.timestamp(NOW + 1))
    assert len(page_through(bench, 10, since=events.timestamp(NOW + 60))) == 3
    assert page_through(bench, 10, since=events.timestamp(NOW + 61)) == []


def test_few_of_many(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """If few deliveries match, a page can be empty, and its cursor still leads to them."""
    monkeypatch.setattr("core.webhooks.deliveries.index.MAX_EXAMINED", 4)
    wanted = bench.created(event="document.failed")
    for _ in range(9):
        bench.clock.now += 1
        bench.created()
    page, cursor = bench.index.page("ana", ENDPOINT, event="document.failed")
    assert (page, cursor is None) == ([], False)
    assert page_through(bench, 5, event="document.failed") == [wanted]


def test_unsent(bench: Bench) -> None:
    """Deliveries without success are listed and counted in a time window, from a given entry on."""
    made = []
    for _ in range(5):
        made.append(bench.created(status="failed"))
        bench.clock.now += 10
    bench.created(status="discarded")
    span = {"since": events.timestamp(NOW + 10), "until": events.timestamp(NOW + 40)}
    found = bench.index.unsent("ana", ENDPOINT, "failed", limit=10, **span)
    assert [id_of(entry) for entry in found] == [subject.delivery_id for subject in made[1:4]]
    assert bench.index.count_unsent("ana", ENDPOINT, "failed", **span) == 3
    first = bench.index.unsent("ana", ENDPOINT, "failed", limit=2, **span)
    assert first == found[:2]
    assert bench.index.unsent("ana", ENDPOINT, "failed", limit=2, after=first[-1]["gsi2sk"], **span) == found[2:]
    assert bench.index.unsent("ana", ENDPOINT, "failed", limit=2, after=found[-1]["gsi2sk"], **span) == []
