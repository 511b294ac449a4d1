"""core.webhooks.deliveries.rate_limit"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.webhooks.deliveries import rate_limit as module
from core.webhooks.deliveries.health import AttemptOutcome, Health
from core.webhooks.deliveries.health_store import HealthStore
from core.webhooks.deliveries.rate_limit import HORIZON_MS, RateLimiter
from tests.unit.core.jobs.memory_table import MemoryTable
from tests.unit.examples import NOW, FakeClock

OWNER, DESTINATION = "ana", "wh_1"


class Bench:
    def __init__(self, table: Any = None, name: str = "deliveries") -> None:
        self.table, self.clock = table or MemoryTable(), FakeClock()
        self.limiter = RateLimiter(self.table, name, clock=self.clock)
        self.health = HealthStore(self.table, name, failures_to_open=1, clock=self.clock)

    def reserve(self, rate: float) -> float | None:
        return self.limiter.reserve(OWNER, DESTINATION, rate=rate)


@pytest.fixture
def bench(dynamodb: Any, deliveries_table: str) -> Bench:
    return Bench(dynamodb, deliveries_table)


@given(
    rate=st.one_of(st.floats(0.01, 1000), st.integers(1, 1000)),
    pauses=st.lists(st.floats(0, 20), min_size=2, max_size=40),
)
def test_slots(rate: float, pauses: list[float]) -> None:
    """Any reservations have slots at the distance of the rate, none in the past or beyond the horizon."""
    bench = Bench()
    slots = []
    for pause in pauses:
        bench.clock.now += pause
        slot = bench.reserve(rate)
        if slot is None:
            continue
        assert bench.clock.now - 0.001 <= slot <= bench.clock.now + HORIZON_MS / 1000
        slots.append(slot)
    interval = max(1 / rate, 0.001)
    assert all(later - earlier >= interval - 1e-6 for earlier, later in pairwise(slots))


def test_slots_over_the_table(bench: Bench) -> None:
    """With a rate of three, three slots are in one second, and the next one is in the second after."""
    found = [bench.reserve(3) for _ in range(4)]
    assert found == pytest.approx([NOW, NOW + 0.334, NOW + 0.668, NOW + 1.002])
    bench.clock.now += 60
    assert bench.reserve(3) == bench.clock.now


def test_slots_too_far_ahead(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """No slot is further ahead than a queue can delay."""
    monkeypatch.setattr(module, "HORIZON_MS", 5_000)
    found = [bench.reserve(1) for _ in range(8)]
    assert found == [NOW, NOW + 1, NOW + 2, NOW + 3, NOW + 4, None, None, None]


def test_slots_are_independent_of_the_circuit(bench: Bench) -> None:
    """Slots do not change counters and circuit, and are not changed by them."""
    bench.reserve(1)
    new = bench.health.get(OWNER, DESTINATION)
    assert new == Health(owner=OWNER, destination=DESTINATION)
    bench.health.record_outcomes(new, [AttemptOutcome(NOW, False, ended=False)])
    assert bench.reserve(1) == NOW + 1
    assert bench.health.get(OWNER, DESTINATION).is_open
