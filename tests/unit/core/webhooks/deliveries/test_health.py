from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import events
from core.webhooks.deliveries import health as module
from core.webhooks.deliveries.health import (
    DRAIN_SECONDS,
    FIRST_PAUSE_SECONDS,
    JITTER,
    LAST_PAUSE_SECONDS,
    PROBE_SECONDS,
    SLOT_HORIZON_MS,
    AttemptOutcome,
    Health,
    HealthStore,
    health_key,
)
from tests.simulated_cloud.calls import Calls
from tests.simulated_cloud.clock import Clock
from tests.unit.core.jobs.memory_table import MemoryTable
from tests.unit.examples import NOW, FakeClock

OWNER, LANE = "ana", "wh_1"
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
        return self.store.get(OWNER, LANE)

    def settle(self, *succeeded: bool, probe: bool = False, seen: Health | None = None, **options: Any) -> Health:
        """What one sender tells after a batch with these outcomes, a second apart, the last of them now."""
        last = len(succeeded) - 1
        outcomes = [
            AttemptOutcome(self.clock.now - last + number, each, ended=each, probe=probe)
            for number, each in enumerate(succeeded)
        ]
        return self.store.settle(seen or self.now(), outcomes, **options)

    def opened(self) -> Health:
        health = self.settle(*[False] * THRESHOLD)
        assert health.is_open
        return health

    def due(self) -> list[str]:
        return [health.destination for health in self.store.due_circuits()]

    def item(self) -> dict[str, Any]:
        found: dict[str, Any] = self.table.get_item(TableName=self.name, Key=health_key(OWNER, LANE))["Item"]
        return found


@pytest.fixture
def bench(dynamodb: Any, deliveries_table: str) -> Bench:
    return Bench(dynamodb, deliveries_table)


# ── counting ─────────────────────────────────────────────────────────────────────────────────────────────────


def streak(outcomes: Sequence[AttemptOutcome]) -> list[AttemptOutcome]:
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
    """However outcomes are cut into batches, and in whatever order each has them, the numbers are those of all."""
    outcomes = [
        AttemptOutcome(NOW + number, data.draw(st.booleans()), ended=data.draw(st.booleans()))
        for number in range(count)
    ]
    bench, rest = Bench(threshold=1000), outcomes
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        batch, rest = rest[:size], rest[size:]
        told = bench.store.settle(bench.now(), data.draw(st.permutations(batch)))
        assert told == bench.now()
    found, since = bench.now(), streak(outcomes)
    assert (found.attempts, found.delivered) == (count, sum(outcome.succeeded for outcome in outcomes))
    assert found.failed == sum(outcome.ended and not outcome.succeeded for outcome in outcomes)
    assert found.consecutive_failures == len(since)
    assert found.failing_since == (events.timestamp(since[0].at) if since else None)
    assert found.last_success_at == last(outcomes, succeeded=True)
    assert found.last_failure_at == last(outcomes, succeeded=False)


def test_nothing_yet(bench: Bench) -> None:
    """A destination that was never used is closed, and has counted nothing."""
    assert bench.now() == Health(owner=OWNER, destination=LANE)
    assert bench.due() == []


def test_counts(bench: Bench) -> None:
    """Failures in a row are counted over batches, from the first one on, until one succeeds."""
    bench.settle(False)
    bench.clock.now += 60
    found = bench.settle(False)
    assert (found.consecutive_failures, found.failing_since) == (2, events.timestamp(NOW))
    found = bench.settle(True)
    assert (found.consecutive_failures, found.failing_since, found.attempts) == (0, None, 3)


def test_expiry(bench: Bench) -> None:
    """A destination that nobody deletes is forgotten some time after its last batch; others stay."""
    bench.settle(False)
    assert "expires_at" not in bench.item()
    bench.settle(False, expires_at=int(NOW) + 5)
    assert bench.item()["expires_at"] == int(NOW) + 5


def test_many(bench: Bench) -> None:
    """Lanes are read in any number, those that there are not too, and one that is asked for twice."""
    bench.settle(True)
    destinations = [LANE, *(f"wh_{number}" for number in range(2, 131)), LANE]
    found = bench.store.many(OWNER, destinations)
    assert set(found) == set(destinations)
    assert found[LANE] == bench.now()
    assert found["wh_130"] == Health(owner=OWNER, destination="wh_130")
    assert bench.store.many(OWNER, []) == {}


def test_many_but_slowly() -> None:
    """What a read leaves out is asked for again."""
    bench = Bench()  # whose table gives one item at a time
    for destination in ("wh_1", "wh_2", "wh_3"):
        bench.store.settle(bench.store.get(OWNER, destination), [AttemptOutcome(NOW, True, True)])
    found = bench.store.many(OWNER, ["wh_1", "wh_2", "wh_3"])
    assert [health.delivered for health in found.values()] == [1, 1, 1]


# ── the circuit ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("batches", [[3], [1, 1, 1], [2, 1], [1, 5]])
def test_opens(bench: Bench, batches: list[int]) -> None:
    """The circuit opens at the failure that makes it so many in a row, and is looked at after the first pause."""
    for size in batches[:-1]:
        assert not bench.settle(*[False] * size).is_open
        assert bench.due() == []
    found = bench.settle(*[False] * batches[-1])
    assert (found.is_open, found.pause) == (True, FIRST_PAUSE_SECONDS)
    assert found.look_at == events.timestamp(NOW + FIRST_PAUSE_SECONDS)
    assert bench.due() == []
    bench.clock.now += FIRST_PAUSE_SECONDS
    assert bench.due() == [LANE]


def test_stays_closed(bench: Bench) -> None:
    """A success within the row keeps it closed."""
    assert not bench.settle(False, False, True, False, False).is_open


@given(st.floats(0, 3))
def test_spread(spread: float) -> None:
    """The pause is spread by a fifth either way, so that circuits that open together do not stay together."""
    bench = Bench()
    bench.spread = spread
    look_at = bench.opened().look_at
    assert look_at is not None
    pause = datetime.fromisoformat(look_at).timestamp() - NOW
    assert FIRST_PAUSE_SECONDS * (1 - JITTER) - 0.01 <= pause <= FIRST_PAUSE_SECONDS * (1 + JITTER) + 0.01


def test_two_open_it(bench: Bench) -> None:
    """Of two senders that count to the threshold at once one opens the circuit, and its pause holds."""
    seen = bench.now()
    bench.settle(False, False, False, seen=seen)
    opened = bench.now()
    bench.clock.now += 5
    bench.settle(False, False, False, seen=seen)
    assert bench.now().look_at == opened.look_at
    assert bench.now().consecutive_failures == 6


def test_two_open_it_at_the_same_moment(bench: Bench) -> None:
    """If both have counted before either opens, the one that is slower changes nothing."""
    calls, seen, opened = Calls(Clock()), bench.now(), []

    def rival(call: Any) -> None:
        bench.settle(False, False, False, seen=seen)
        bench.clock.now += 5
        opened.append(bench.now())

    with calls.intercepted():
        calls.on("dynamodb", "UpdateItem", rival, when=lambda c: ":open" in c.params["ExpressionAttributeValues"])
        bench.settle(False, False, False, seen=seen)
    (first,) = opened
    assert (first.is_open, bench.now().look_at) == (True, first.look_at)
    assert bench.now().look_at == events.timestamp(NOW + FIRST_PAUSE_SECONDS)


def test_probes(bench: Bench) -> None:
    """The pause doubles with each probe that fails, up to the longest, and no other failure moves it."""
    bench.opened()
    pauses = []
    for _ in range(9):
        bench.settle(False, probe=True)
        bench.settle(False)
        found = bench.now()
        assert found.is_open
        assert found.look_at == events.timestamp(bench.clock.now + found.pause)
        pauses.append(found.pause)
    assert pauses == [120, 240, 480, 960, 1920, 3600, 3600, 3600, 3600]
    assert pauses[-1] == LAST_PAUSE_SECONDS


def test_one_probe(bench: Bench) -> None:
    """Of those that look at a circuit at once, one may probe; if nothing comes of it, another may later."""
    bench.opened()
    bench.clock.now += FIRST_PAUSE_SECONDS
    (seen,) = bench.store.due_circuits()
    assert [bench.store.begin_probe(seen) for _ in range(3)] == [True, False, False]
    assert bench.due() == []
    bench.clock.now += PROBE_SECONDS
    assert bench.due() == [LANE]


def test_recovery(bench: Bench) -> None:
    """A success drains the circuit: it is looked at, again and again, until nothing can be held any more."""
    bench.opened()
    found = bench.settle(True, probe=True)
    assert (found.state, found.consecutive_failures) == ("draining", 0)
    assert found.drained_at == int(NOW) + DRAIN_SECONDS
    assert bench.due() == [LANE]
    bench.clock.now += DRAIN_SECONDS
    assert bench.due() == [LANE]
    (seen,) = bench.store.due_circuits()
    bench.store.close(seen)
    assert (bench.now().state, bench.due()) == ("closed", [])
    assert not {"gsi2pk", "gsi2sk", "look_at", "pause", "drained_at"} & set(bench.item())


def test_the_streak_outlives_draining(bench: Bench) -> None:
    """Failures while it drains are counted on when it has closed, and open it if they are enough."""
    bench.opened()
    bench.settle(True, probe=True)
    bench.settle(False, False)
    bench.store.close(bench.now())
    assert bench.now().consecutive_failures == 2
    assert bench.settle(False).is_open


def test_opens_again_while_draining(bench: Bench) -> None:
    """Enough failures open a circuit that drains, and whoever thought to close it does not."""
    bench.opened()
    seen = bench.settle(True, probe=True)
    bench.clock.now += 1
    assert bench.settle(False, False, False).is_open
    bench.store.close(seen)
    assert bench.now().is_open


def test_a_success_that_is_old(bench: Bench) -> None:
    """A batch with a success and then enough failures leaves the circuit open."""
    bench.opened()
    assert bench.settle(True, False, False, False).is_open


def test_nothing_to_probe_with(bench: Bench) -> None:
    """An open circuit that holds nothing lets the next ones through, and one failure opens it again."""
    bench.opened()
    bench.store.half_open(bench.now())
    assert bench.now().state == "draining"
    assert bench.due() == [LANE]
    assert bench.settle(False).is_open


def test_drain(bench: Bench) -> None:
    """Whoever edits an endpoint has what is held looked at, and its failures forgotten."""
    bench.opened()
    bench.store.drain(OWNER, LANE, expires_at=9)
    found = bench.now()
    assert (found.state, found.consecutive_failures, found.failing_since) == ("draining", 0, None)
    assert bench.due() == [LANE]
    assert bench.item()["expires_at"] == 9


def test_drain_what_was_never_used(bench: Bench) -> None:
    """A destination without any item drains and closes like any other."""
    bench.store.drain(OWNER, LANE)
    assert bench.due() == [LANE]
    bench.store.close(bench.now())
    assert bench.due() == []


def test_what_is_gone() -> None:
    """A circuit whose item has been removed meanwhile is closed, and closing it writes nothing."""
    bench = Bench()  # moto has an attribute that is not there equal null
    gone = Health(owner=OWNER, destination="wh_gone")
    bench.store.close(gone)
    bench.store.half_open(gone)
    assert not bench.store.begin_probe(gone)
    assert bench.table.items == {}


def test_circuits_of_many(bench: Bench) -> None:
    """Circuits come in the order in which they must be looked at, those of all owners."""
    for seconds, owner in ((3, "ben"), (1, "ana"), (2, "eva")):
        bench.clock.now = NOW + seconds
        bench.store.drain(owner, "default-0123")
    assert [health.owner for health in bench.store.due_circuits()] == ["ana", "eva"]
    bench.clock.now = NOW + 3
    assert [health.owner for health in bench.store.due_circuits()] == ["ana", "eva", "ben"]


# ── rate limits ──────────────────────────────────────────────────────────────────────────────────────────────


@given(
    rate=st.one_of(st.floats(0.01, 1000), st.integers(1, 1000)),
    pauses=st.lists(st.floats(0, 20), min_size=2, max_size=40),
)
def test_slots(rate: float, pauses: list[float]) -> None:
    """However many ask, and whenever, no two slots are nearer than the rate allows, none is past or too far."""
    bench = Bench()
    slots = []
    for pause in pauses:
        bench.clock.now += pause
        slot = bench.store.reserve(OWNER, LANE, rate=rate)
        if slot is None:
            continue
        assert bench.clock.now - 0.001 <= slot <= bench.clock.now + SLOT_HORIZON_MS / 1000
        slots.append(slot)
    interval = max(1 / rate, 0.001)
    assert all(later - earlier >= interval - 1e-6 for earlier, later in pairwise(slots))


def test_slots_over_the_table(bench: Bench) -> None:
    """Three a second, and the next when a second is over."""
    found = [bench.store.reserve(OWNER, LANE, rate=3) for _ in range(4)]
    assert found == pytest.approx([NOW, NOW + 0.334, NOW + 0.668, NOW + 1.002])
    bench.clock.now += 60
    assert bench.store.reserve(OWNER, LANE, rate=3) == bench.clock.now


def test_slots_too_far_ahead(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """No slot is given out that is farther ahead than a queue can delay."""
    monkeypatch.setattr(module, "SLOT_HORIZON_MS", 5_000)
    found = [bench.store.reserve(OWNER, LANE, rate=1) for _ in range(8)]
    assert found == [NOW, NOW + 1, NOW + 2, NOW + 3, NOW + 4, None, None, None]


def test_a_slot_is_no_circuit(bench: Bench) -> None:
    """Reserving leaves counters and circuit alone, and they leave the slots alone."""
    bench.store.reserve(OWNER, LANE, rate=1)
    assert bench.now() == Health(owner=OWNER, destination=LANE)
    bench.opened()
    assert bench.store.reserve(OWNER, LANE, rate=1) == NOW + 1
    assert bench.now().is_open
