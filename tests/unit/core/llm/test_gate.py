"""core.llm.gate"""

from __future__ import annotations

from typing import Any

import pytest

from core.errors import ModelRejected
from core.jobs.kind import Wait
from core.llm.catalog import Model, Rate
from core.llm.circuit import FAULTS, MIN_OPEN_SECONDS, Circuits
from core.llm.gate import ModelGate
from core.llm.rate_limit import RateLimiter
from tests.unit.core.jobs.memory_table import MemoryTable
from tests.unit.examples import FakeClock

LIMITED = Model(name="bedrock/m", requests=Rate.parse("10/s"), tokens=Rate.parse("100/m"))


class Bench:
    def __init__(self) -> None:
        self.clock, self.slept, self.table = FakeClock(), list[float](), MemoryTable()
        self.gate = self.worker()

    def worker(self) -> ModelGate:
        """Another process. Waits are not spread."""
        circuits = Circuits(self.table, "jobs", clock=self.clock, spread=lambda low, high: low)
        return ModelGate(circuits, RateLimiter(self.table, "jobs", clock=self.clock), sleep=self.slept.append)

    def admit(self, model: Model = LIMITED, **options: Any) -> Wait | None:
        return self.gate.admit(model, **{"owner": "ana", "tokens": 1, "waited": False} | options)

    def open_circuit(self) -> None:
        for number in range(FAULTS):
            self.gate.failed(LIMITED, ("ana", "ben")[number % 2])


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_sleeps_until_the_slot(bench: Bench) -> None:
    """A slot up to half a second ahead is slept for. A later one is a Wait."""
    answers = [bench.admit() for _ in range(7)]
    assert answers == [None] * 6 + [Wait("rate_limit", 1)]
    assert bench.slept == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])


def test_circuit_comes_first(bench: Bench) -> None:
    """While the circuit is open, a job takes no slot."""
    bench.open_circuit()
    for _ in range(20):
        assert bench.admit() == Wait("provider_circuit", MIN_OPEN_SECONDS)
    bench.clock.now += MIN_OPEN_SECONDS
    assert bench.admit() is None
    assert bench.slept == []


def test_probe_without_a_slot(bench: Bench) -> None:
    """A probe that gets no slot gives the probe back."""
    bench.admit(tokens=100)
    bench.open_circuit()
    bench.clock.now += MIN_OPEN_SECONDS
    wait = bench.admit()
    assert isinstance(wait, Wait)
    assert wait.reason == "rate_limit"
    without_limits = Model(name="bedrock/other")
    assert bench.worker().admit(without_limits, owner="ben", tokens=1, waited=True) is None


def test_settled_tokens(bench: Bench) -> None:
    """Tokens that a call did not use are free. What this process has not admitted gives nothing back."""
    bench.gate.settle(LIMITED, reserved=60, used=0)
    assert [bench.admit(tokens=40), bench.admit(tokens=60)] == [None, None]
    bench.gate.settle(LIMITED, reserved=60, used=10)
    bench.gate.settle(LIMITED, reserved=60, used=10)
    assert isinstance(bench.admit(tokens=51), Wait)
    assert bench.admit(tokens=50, waited=True) is None


def test_outcomes(bench: Bench) -> None:
    """Faults of a provider open its circuit for all its models, and a success closes it."""
    other = Model(name="bedrock/other")
    bench.open_circuit()
    assert isinstance(bench.admit(other), Wait)
    assert bench.admit(Model(name="openai/gpt-4o-mini")) is None
    bench.clock.now += MIN_OPEN_SECONDS
    assert bench.admit(other) is None
    bench.gate.released(other, "ana")
    assert bench.admit(other, owner="ben") is None
    bench.gate.succeeded(other, "ben")
    assert [bench.admit(other), bench.admit(other, owner="ben")] == [None, None]


def test_too_many_tokens(bench: Bench) -> None:
    """A request that the limit never allows is rejected, and the message says what to change."""
    assert LIMITED.fits(100)
    assert not LIMITED.fits(101)
    assert Model(name="bedrock/m", requests=Rate.parse("1/m")).fits(1_000_000)
    with pytest.raises(
        ModelRejected, match=r"needs 101 tokens.* allows 100\. Shorten the input or lower max_tokens"
    ):
        bench.admit(tokens=101)
    assert bench.table.items == {}
