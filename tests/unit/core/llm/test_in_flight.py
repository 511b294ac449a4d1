"""Calls of models in flight, by owner (core.llm.in_flight)."""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from collections import Counter
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import Postponed
from core.llm.in_flight import INVOCATION_SECONDS, MAX_WAIT_SECONDS, REASON, ModelCalls, wait_seconds
from tests.unit.core.jobs.memory_table import MemoryTable
from tests.unit.examples import FakeClock


class Bench:
    def __init__(self, per_owner: int = 2) -> None:
        self.clock, self.table = FakeClock(), MemoryTable()
        self.calls = ModelCalls(self.table, "jobs", per_owner=per_owner, clock=self.clock)

    def waits(self, owner: str = "ana") -> bool:
        return self.calls.wait(owner, waited=0) is not None


def test_limit() -> None:
    """An owner has so many calls at a time and no more, each owner its own; an ended call counts no more."""
    bench = Bench(per_owner=2)
    with bench.calls.place("ana"):
        assert not bench.waits()
        with bench.calls.place("ana"):
            assert (bench.waits(), bench.waits("ben")) == (True, False)
            with pytest.raises(Postponed) as caught, bench.calls.place("ana"):
                pass
            assert caught.value.reason == REASON
    assert not bench.waits()
    assert bench.table.items == {}


def test_calls_that_fail() -> None:
    """A call that raises gives its place back."""
    bench = Bench(per_owner=1)
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), bench.calls.place("ana"):
            raise error
    assert bench.table.items == {}


def test_killed_worker() -> None:
    """A killed worker's place is free when its invocation would have ended; it does not free another's then."""
    bench = Bench(per_owner=1)
    killed, second = bench.calls.place("ana"), bench.calls.place("ana")
    killed.__enter__()
    bench.clock.now += INVOCATION_SECONDS - 1
    assert bench.waits()
    bench.clock.now += 1
    assert not bench.waits()
    second.__enter__()
    killed.__exit__(None, None, None)
    assert bench.waits()


def test_lowered_limit() -> None:
    """After the limit was lowered, calls that began before count."""
    bench = Bench(per_owner=3)
    lower = ModelCalls(bench.table, "jobs", per_owner=1, clock=bench.clock)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(bench.calls.place("ana"))
        bench.table.items.pop(("OWNER#ana", "CALL#0000"))
        assert lower.wait("ana", waited=0)


def test_no_limit() -> None:
    """Without a limit nothing is read or written."""
    calls = ModelCalls(None, "jobs", per_owner=0)
    with calls.place("ana"), calls.place("ana"):
        assert calls.wait("ana", waited=0) is None


def test_limit_is_exact(dynamodb: Any, jobs_table: str) -> None:
    """Of calls that begin at the same moment, no more than the limit run."""
    calls = ModelCalls(dynamodb, jobs_table, per_owner=3)
    begin, running, most, lock = threading.Barrier(8), Counter[str](), list[int](), threading.Lock()

    def call() -> None:
        begin.wait()
        for _ in range(3):
            try:
                with calls.place("ana"):
                    with lock:
                        running["ana"] += 1
                        most.append(running["ana"])
                    with lock:
                        running["ana"] -= 1
            except Postponed:
                continue

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= max(most) <= 3


@given(st.floats(0, 1e6))
def test_wait(waited: float) -> None:
    """A job asks again within 2 s, and later within a quarter of the time that it has waited, or a minute."""
    assert 1 <= wait_seconds(waited) <= max(2, min(MAX_WAIT_SECONDS, waited / 4))


def simulate(
    jobs: dict[str, int], *, workers: int, per_owner: int, seconds: float
) -> tuple[dict[str, float], int]:
    """(when the last job of each owner ended, how often jobs asked) of jobs that are all submitted at once.

    Workers take messages in the order in which they are visible: no queue here shares them fairly.
    """
    bench, chance, numbers = Bench(per_owner), random.Random(2), itertools.count()
    start, asks, ended = bench.clock.now, 0, dict[str, float]()
    waiting = [(start, next(numbers), owner, start) for owner, count in jobs.items() for _ in range(count)]
    free = [(start, next(numbers), ExitStack()) for _ in range(workers)]
    while waiting:
        at, _, call = heapq.heappop(free)
        bench.clock.now = max(at, waiting[0][0])
        for other in [call, *(entry[2] for entry in free if entry[0] <= bench.clock.now)]:
            other.close()
        _, _, owner, since = heapq.heappop(waiting)
        asks += 1
        wait = bench.calls.wait(owner, waited=bench.clock.now - since)
        if wait:
            delay = -(-wait.seconds // 1)
            heapq.heappush(waiting, (bench.clock.now + delay, next(numbers), owner, since))
            heapq.heappush(free, (bench.clock.now + 0.02, next(numbers), call))
            continue
        call.enter_context(bench.calls.place(owner))
        until = bench.clock.now + seconds * chance.uniform(0.5, 1.5)
        ended[owner] = max(ended.get(owner, 0), until - start)
        heapq.heappush(free, (until, next(numbers), call))
    return ended, asks


def test_slow_calls_of_one_owner() -> None:
    """While 300 calls of one owner take minutes each, three jobs of another do not wait for them."""
    ended, _ = simulate({"ana": 300, "ben": 3}, workers=2, per_owner=1, seconds=200)
    alone, _ = simulate({"ben": 3}, workers=2, per_owner=1, seconds=200)
    assert ended["ben"] < 1.2 * alone["ben"] + 60
    assert ended["ana"] > 50 * ended["ben"]
