"""core.llm.waiting_owners"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.llm.waiting_owners import LATE, MAX_OWNERS, SOON, WaitingOwners
from tests.unit.core.jobs.memory_table import MemoryTable

SECOND = 1_000_000
NOW = 1_796_000_000 * SECOND
KEY = {"pk": "MODEL#m", "sk": "WAITING"}


class Bench:
    """The item of a model whose limit allows ten calls a second."""

    def __init__(self) -> None:
        self.table, self.now = MemoryTable(), NOW

    @property
    def owners(self) -> WaitingOwners:
        item = self.table.get_item(TableName="jobs", Key=KEY).get("Item", {})
        return WaitingOwners(item, now=self.now, window=SECOND)

    def refuse(self, owner: str, *, jobs: int = 1, due: float = 1, waited: bool = False) -> None:
        for _ in range(jobs):
            self._update(self.owners.refused(owner, self.now + int(due * SECOND), waited=waited))

    def grant(self, owner: str, *, jobs: int = 1) -> None:
        for _ in range(jobs):
            self._update(self.owners.granted(owner, SECOND // 10, waited=True))

    def listed(self) -> set[str]:
        return set(self.table.items.get((KEY["pk"], KEY["sk"]), {})) - set(KEY)

    def _update(self, change: dict[str, Any] | None) -> None:
        if change is not None:
            self.table.update_item(TableName="jobs", Key=KEY, **change)


def places(waiting: Sequence[tuple[str, int]], owner: str) -> int:
    bench = Bench()
    for each, jobs in waiting:
        bench.refuse(each, jobs=jobs)
    return bench.owners.place(owner)


def test_place_in_line() -> None:
    """Owners take turns: the first job of an owner comes after one of each other owner."""
    assert places([], "ana") == 1
    assert places([("ana", 5)], "ana") == 6
    assert places([("ana", 100)], "ben") == 2
    assert places([("ana", 100), ("ben", 3)], "ben") == 8
    assert places([("ana", 2), ("ben", 100), ("cy", 1)], "ben") == 104


def test_share() -> None:
    """An owner that had its share yields while a job of another owner is expected, and only then."""
    bench = Bench()
    bench.refuse("ana", jobs=20, due=1)
    bench.refuse("ben", due=1)
    bench.now += SECOND
    bench.grant("ana", jobs=4)
    assert not bench.owners.must_yield("ana")
    bench.grant("ana")
    assert bench.owners.must_yield("ana")
    assert not bench.owners.must_yield("ben")
    bench.grant("ben")
    assert not bench.owners.must_yield("ana")


def test_other_job_is_far() -> None:
    """Nobody yields to a job that asks later than half a second from now."""
    bench = Bench()
    bench.refuse("ana", jobs=20)
    bench.refuse("ben", due=3)
    bench.grant("ana", jobs=10)
    assert not bench.owners.must_yield("ana")
    bench.now += 3 * SECOND - SOON
    bench.refuse("ana", waited=True)
    bench.grant("ana", jobs=5)
    assert bench.owners.must_yield("ana")


def test_share_of_the_last_window() -> None:
    """Calls before the last window do not count."""
    bench = Bench()
    bench.refuse("ana", jobs=20)
    bench.refuse("ben", due=2)
    bench.grant("ana", jobs=10)
    bench.now += 2 * SECOND
    assert not bench.owners.must_yield("ana")


def test_owner_alone() -> None:
    """An owner that waits alone yields to nobody."""
    bench = Bench()
    bench.refuse("ana", jobs=20)
    bench.grant("ana", jobs=10)
    assert not bench.owners.must_yield("ana")


def test_owner_whose_jobs_have_started() -> None:
    """The last job of an owner takes the owner out of the item."""
    bench = Bench()
    bench.refuse("ana", jobs=3)
    bench.grant("ana", jobs=2)
    assert bench.listed() == {"count#ana", "times#ana"}
    bench.grant("ana")
    assert bench.listed() == set()
    assert bench.owners.is_empty


def test_owner_that_does_not_wait() -> None:
    """A call of an owner without waiting jobs is not written."""
    assert Bench().owners.granted("ana", 1, waited=False) is None


def test_jobs_that_never_came_back() -> None:
    """They count until the last one is late. The next change removes them."""
    bench = Bench()
    bench.refuse("ana", jobs=50, due=2)
    bench.now += 2 * SECOND + LATE
    assert bench.owners.place("ben") == 2
    bench.now += 1
    assert bench.owners.place("ben") == 1
    bench.refuse("ben")
    assert bench.listed() == {"count#ben", "times#ben"}


def test_owner_comes_again_after_it_was_late() -> None:
    """Its count starts from one."""
    bench = Bench()
    bench.refuse("ana", jobs=50)
    bench.now += SECOND + LATE + 1
    bench.refuse("ana", waited=True)
    assert bench.owners.place("ana") == 2


def test_many_owners() -> None:
    """The item has no more owners than fit into 4 KB. Further ones get the place of an owner with one job."""
    bench = Bench()
    names = [f"{number:02}-{'x' * 61}" for number in range(MAX_OWNERS + 5)]
    for name in names:
        bench.refuse(name, jobs=2)
    assert len(bench.listed()) == 2 * MAX_OWNERS
    assert bench.owners.place(names[-1]) == 1 + MAX_OWNERS
    item = bench.table.items[KEY["pk"], KEY["sk"]]
    assert sum(len(name) for name in item) + 2 * MAX_OWNERS * 25 < 4096
    bench.grant(names[0], jobs=2)
    bench.refuse(names[-1])
    assert bench.owners.place(names[-1]) == 2 + 2 * (MAX_OWNERS - 1)
