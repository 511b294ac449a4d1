"""core.webhooks.deliveries.health and health_store"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import events
from core.webhooks.deliveries.health import NEW_HOST_FAILURES, AttemptOutcome, Health, health_key
from core.webhooks.deliveries.health_store import (
    DRAINING_SECONDS,
    MAX_OPEN_SECONDS,
    MIN_OPEN_SECONDS,
    PROBE_SECONDS,
    HealthStore,
)
from core.webhooks.deliveries.schedule import JITTER
from tests.simulated_cloud.calls import Calls
from tests.simulated_cloud.clock import Clock
from tests.unit.core.jobs.memory_table import MemoryTable
from tests.unit.examples import NOW, FakeClock

OWNER, DESTINATION = "ana", "wh_1"
THRESHOLD = 3


class Bench:
    def __init__(self, table: Any = None, name: str = "deliveries", *, threshold: int = THRESHOLD) -> None:
        self.table, self.name, self.clock = table or MemoryTable(), name, FakeClock()
        self.spread = 1.0
        self.store = HealthStore(
            self.table,
            name,
            failures_to_open=threshold,
            clock=self.clock,
            spread=lambda low, high: min(max(low, self.spread), high),
        )

    def now(self) -> Health:
        return self.store.get(OWNER, DESTINATION)

    def record(self, *succeeded: bool, probe: bool = False, seen: Health | None = None, **options: Any) -> Health:
        """Record one sender's batch with these outcomes, one second apart, the last one now."""
        last = len(succeeded) - 1
        outcomes = [
            AttemptOutcome(self.clock.now - last + number, each, ended=each, probe=probe)
            for number, each in enumerate(succeeded)
        ]
        return self.store.record_outcomes(seen or self.now(), outcomes, **options)

    def opened(self) -> Health:
        health = self.record(*[False] * THRESHOLD)
        assert health.is_open
        return health

    def due(self) -> list[str]:
        return [health.destination for health in self.store.due_circuits()]

    def item(self) -> dict[str, Any]:
        found: dict[str, Any] = self.table.get_item(TableName=self.name, Key=health_key(OWNER, DESTINATION))[
            "Item"
        ]
        return found


@pytest.fixture
def bench(dynamodb: Any, deliveries_table: str) -> Bench:
    return Bench(dynamodb, deliveries_table)


# ── counting ─────────────────────────────────────────────────────────────────────────────────────────────────


def consecutive_failures(outcomes: Sequence[AttemptOutcome]) -> list[AttemptOutcome]:
    """The failures since the last success."""
    since: list[AttemptOutcome] = []
    for outcome in outcomes:
        since = [] if outcome.succeeded else [*since, outcome]
    return since


def last(outcomes: Sequence[AttemptOutcome], *, succeeded: bool) -> str | None:
    moments = [outcome.at for outcome in outcomes if outcome.succeeded == succeeded]
    return events.timestamp(moments[-1]) if moments else None


@given(data=st.data(), count=st.integers(1, 30))
def test_batches(data: st.DataObject, count: int) -> None:
    """The counters are the same however outcomes are split into batches, in any order within a batch."""
    outcomes = [
        AttemptOutcome(NOW + number, data.draw(st.booleans()), ended=data.draw(st.booleans()))
        for number in range(count)
    ]
    bench, rest = Bench(threshold=1000), outcomes
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        batch, rest = rest[:size], rest[size:]
        recorded = bench.store.record_outcomes(bench.now(), data.draw(st.permutations(batch)))
        assert recorded == bench.now()
    found, since = bench.now(), consecutive_failures(outcomes)
    assert (found.attempts, found.delivered) == (count, sum(outcome.succeeded for outcome in outcomes))
    assert found.failed == sum(outcome.ended and not outcome.succeeded for outcome in outcomes)
    assert found.consecutive_failures == len(since)
    assert found.failing_since == (events.timestamp(since[0].at) if since else None)
    assert found.last_success_at == last(outcomes, succeeded=True)
    assert found.last_failure_at == last(outcomes, succeeded=False)


def test_expiry(bench: Bench) -> None:
    """Only the health of a destination that nobody deletes has an expiry."""
    bench.record(False)
    assert "expires_at" not in bench.item()
    bench.record(False, expires_at=int(NOW) + 5)
    assert bench.item()["expires_at"] == int(NOW) + 5


def test_many(bench: Bench) -> None:
    """Any number of destinations is read, including new and repeated ones."""
    bench.record(True)
    destinations = [DESTINATION, *(f"wh_{number}" for number in range(2, 131)), DESTINATION]
    found = bench.store.many(OWNER, destinations)
    assert set(found) == set(destinations)
    assert found[DESTINATION] == bench.now()
    assert found["wh_130"] == Health(owner=OWNER, destination="wh_130")
    assert bench.store.many(OWNER, []) == {}


def test_unprocessed_keys() -> None:
    """Unprocessed keys are read again."""
    bench = Bench()  # whose table gives one item at a time
    for destination in ("wh_1", "wh_2", "wh_3"):
        bench.store.record_outcomes(bench.store.get(OWNER, destination), [AttemptOutcome(NOW, True, True)])
    found = bench.store.many(OWNER, ["wh_1", "wh_2", "wh_3"])
    assert [health.delivered for health in found.values()] == [1, 1, 1]


# ── the circuit ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("batches", [[3], [1, 1, 1], [2, 1], [1, 5]])
def test_opens(bench: Bench, batches: list[int]) -> None:
    """The circuit opens at the threshold of consecutive failures, and must be checked after the first interval."""
    for size in batches[:-1]:
        assert not bench.record(*[False] * size).is_open
        assert bench.due() == []
    found = bench.record(*[False] * batches[-1])
    assert (found.is_open, found.open_seconds) == (True, MIN_OPEN_SECONDS)
    assert found.next_check_at == events.timestamp(NOW + MIN_OPEN_SECONDS)
    assert bench.due() == []
    bench.clock.now += MIN_OPEN_SECONDS
    assert bench.due() == [DESTINATION]


def test_stays_closed(bench: Bench) -> None:
    """A success between failures keeps the circuit closed."""
    assert not bench.record(False, False, True, False, False).is_open


@given(st.floats(0, 3))
def test_spread(spread: float) -> None:
    """The open time has a jitter of 20 %."""
    bench = Bench()
    bench.spread = spread
    next_check_at = bench.opened().next_check_at
    assert next_check_at is not None
    pause = datetime.fromisoformat(next_check_at).timestamp() - NOW
    assert MIN_OPEN_SECONDS * (1 - JITTER) - 0.01 <= pause <= MIN_OPEN_SECONDS * (1 + JITTER) + 0.01


def test_opened_once(bench: Bench) -> None:
    """If two senders reach the threshold, the circuit is opened once, and keeps its first time."""
    seen = bench.now()
    bench.record(False, False, False, seen=seen)
    opened = bench.now()
    bench.clock.now += 5
    bench.record(False, False, False, seen=seen)
    assert bench.now().next_check_at == opened.next_check_at
    assert bench.now().consecutive_failures == 6


def test_opened_once_concurrently(bench: Bench) -> None:
    """If both count before either opens the circuit, the second one changes nothing."""
    calls, seen, opened = Calls(Clock()), bench.now(), []

    def other(call: Any) -> None:
        bench.record(False, False, False, seen=seen)
        bench.clock.now += 5
        opened.append(bench.now())

    with calls.intercepted():
        calls.on("dynamodb", "UpdateItem", other, when=lambda c: ":open" in c.params["ExpressionAttributeValues"])
        bench.record(False, False, False, seen=seen)
    (first,) = opened
    assert (first.is_open, bench.now().next_check_at) == (True, first.next_check_at)
    assert bench.now().next_check_at == events.timestamp(NOW + MIN_OPEN_SECONDS)


def test_probes(bench: Bench) -> None:
    """Each failed probe doubles the open time up to its maximum; other failures do not change it."""
    bench.opened()
    pauses = []
    for _ in range(9):
        bench.record(False, probe=True)
        bench.record(False)
        found = bench.now()
        assert found.is_open
        assert found.next_check_at == events.timestamp(bench.clock.now + found.open_seconds)
        pauses.append(found.open_seconds)
    assert pauses == [120, 240, 480, 960, 1920, 3600, 3600, 3600, 3600]
    assert pauses[-1] == MAX_OPEN_SECONDS


def test_one_probe(bench: Bench) -> None:
    """One of concurrent callers may probe. If there is no outcome, another may later."""
    bench.opened()
    bench.clock.now += MIN_OPEN_SECONDS
    (seen,) = bench.store.due_circuits()
    assert [bench.store.begin_probe(seen) for _ in range(3)] == [True, False, False]
    assert bench.due() == []
    bench.clock.now += PROBE_SECONDS
    assert bench.due() == [DESTINATION]


def test_recovery(bench: Bench) -> None:
    """After a success the circuit drains, and is checked until no sender can hold a delivery; then it closes."""
    bench.opened()
    found = bench.record(True, probe=True)
    assert (found.state, found.consecutive_failures) == ("draining", 0)
    assert found.draining_until == int(NOW) + DRAINING_SECONDS
    assert bench.due() == [DESTINATION]
    bench.clock.now += DRAINING_SECONDS
    assert bench.due() == [DESTINATION]
    (seen,) = bench.store.due_circuits()
    bench.store.close(seen)
    assert (bench.now().state, bench.due()) == ("closed", [])
    assert not {"gsi2pk", "gsi2sk", "next_check_at", "open_seconds", "draining_until"} & set(bench.item())


def test_failures_while_draining_count(bench: Bench) -> None:
    """Failures while draining are still counted after the circuit has closed."""
    bench.opened()
    bench.record(True, probe=True)
    bench.record(False, False)
    bench.store.close(bench.now())
    assert bench.now().consecutive_failures == 2
    assert bench.record(False).is_open


def test_opens_again_while_draining(bench: Bench) -> None:
    """Enough failures open a draining circuit, which is then not closed by an earlier check."""
    bench.opened()
    seen = bench.record(True, probe=True)
    bench.clock.now += 1
    assert bench.record(False, False, False).is_open
    bench.store.close(seen)
    assert bench.now().is_open


def test_failures_after_a_success(bench: Bench) -> None:
    """A batch with a success and then enough failures leaves the circuit open."""
    bench.opened()
    assert bench.record(True, False, False, False).is_open


def test_nothing_to_probe_with(bench: Bench) -> None:
    """An open circuit without held deliveries is half open: the next failure opens it."""
    bench.opened()
    bench.store.half_open(bench.now())
    assert bench.now().state == "draining"
    assert bench.due() == [DESTINATION]
    assert bench.record(False).is_open


def test_start_draining(bench: Bench) -> None:
    """It sets the circuit to draining and resets the count of failures."""
    bench.opened()
    bench.store.start_draining(OWNER, DESTINATION, expires_at=9)
    found = bench.now()
    assert (found.state, found.consecutive_failures, found.failing_since) == ("draining", 0, None)
    assert bench.due() == [DESTINATION]
    assert bench.item()["expires_at"] == 9


def test_start_draining_a_new_destination(bench: Bench) -> None:
    """A destination without an item can be drained and closed."""
    bench.store.start_draining(OWNER, DESTINATION)
    assert bench.due() == [DESTINATION]
    bench.store.close(bench.now())
    assert bench.due() == []


def test_deleted_item() -> None:
    """A circuit whose item was deleted is closed, and checks of it write nothing."""
    bench = Bench()  # moto has an attribute that is not there equal null
    gone = Health(owner=OWNER, destination="wh_gone")
    bench.store.close(gone)
    bench.store.half_open(gone)
    assert not bench.store.begin_probe(gone)
    assert bench.table.items == {}


def test_circuits_of_many(bench: Bench) -> None:
    """Circuits of all owners are returned in the order of their check times."""
    for seconds, owner in ((3, "ben"), (1, "ana"), (2, "eva")):
        bench.clock.now = NOW + seconds
        bench.store.start_draining(owner, "default-0123")
    assert [health.owner for health in bench.store.due_circuits()] == ["ana", "eva"]
    bench.clock.now = NOW + 3
    assert [health.owner for health in bench.store.due_circuits()] == ["ana", "eva", "ben"]


# ── hosts ────────────────────────────────────────────────────────────────────────────────────────────────────

HOST = "host#example.com:443"


def host_after(store: HealthStore, *succeeded: bool, success: str | None = None) -> Health:
    """The health of a host after a batch with these outcomes. `success`: an earlier one, of an endpoint."""
    health = store.get(OWNER, HOST)
    seen = replace(health, last_success_at=health.last_success_at or success)
    return store.record_outcomes(seen, [AttemptOutcome(NOW, each, ended=False) for each in succeeded])


def test_failures_of_a_new_host() -> None:
    """Fewer failures open the circuit of a host that has never succeeded."""
    store = Bench(threshold=10).store
    assert not host_after(store, *[False] * (NEW_HOST_FAILURES - 1)).is_open
    assert host_after(store, False).is_open


@pytest.mark.parametrize("success", [None, "2026-11-30T08:00:00.000Z"])
def test_failures_of_a_known_host(success: str | None) -> None:
    """A host with a success has all its failures. That of an endpoint before counts, and is remembered."""
    store = Bench(threshold=10).store
    if success is None:
        host_after(store, True)
    assert not host_after(store, *[False] * 9, success=success).is_open
    assert store.get(OWNER, HOST).last_success_at is not None
    assert host_after(store, False).is_open


@pytest.mark.parametrize("known", [False, True])
def test_half_open_host(known: bool) -> None:
    """One failure opens the circuit of a host that is half open, known or new."""
    store = Bench(threshold=10).store
    if known:
        host_after(store, True)
    host_after(store, *[False] * 10)
    store.half_open(store.get(OWNER, HOST))
    assert store.get(OWNER, HOST).state == "draining"
    assert host_after(store, False).is_open


def test_release_host() -> None:
    """An open circuit of a host is half open after the release; a closed one stays as it is."""
    store = Bench(threshold=10).store
    store.release_host(OWNER, HOST)
    assert store.get(OWNER, HOST) == Health(owner=OWNER, destination=HOST)
    host_after(store, *[False] * 10)
    store.release_host(OWNER, HOST)
    assert store.get(OWNER, HOST).state == "draining"
