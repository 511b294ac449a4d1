"""core.llm.circuit"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from core import jobs_table
from core.jobs.kind import Wait
from core.llm.circuit import FAULTS, MAX_OPEN_SECONDS, MAX_OWNERS, MIN_OPEN_SECONDS, PROBE_SECONDS, Circuits
from tests.unit.core.jobs.memory_table import MemoryTable
from tests.unit.examples import FakeClock

PROVIDER = "bedrock"


class Bench:
    def __init__(self, table: Any = None, name: str = "jobs") -> None:
        self.table, self.name, self.clock = table or MemoryTable(), name, FakeClock()
        self.circuits = self.worker()

    def worker(self) -> Circuits:
        """Another process. Waits are not spread."""
        return Circuits(self.table, self.name, clock=self.clock, spread=lambda low, high: low)

    def admit(self, owner: str) -> Wait | None:
        return self.circuits.admit(PROVIDER, owner)

    def fail(self, *owners: str) -> None:
        for owner in owners:
            self.circuits.failed(PROVIDER, owner)

    def open(self, *owners: str) -> None:
        """By faults of these owners."""
        self.fail(*(owners * FAULTS)[:FAULTS])

    def item(self) -> Any:
        key = jobs_table.circuit_key(PROVIDER)
        return self.table.get_item(TableName=self.name, Key=key, ConsistentRead=True).get("Item")


@pytest.fixture(params=["memory", "moto"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """With the table in memory, which the properties use, and with moto."""
    if request.param == "memory":
        return Bench()
    return Bench(request.getfixturevalue("dynamodb"), request.getfixturevalue("jobs_table"))


def test_opens_after_consecutive_faults(bench: Bench) -> None:
    """Five faults without a success open the circuit, for ten seconds."""
    bench.fail("ana", "ben", "ana", "ben")
    assert bench.admit("ana") is None
    bench.fail("ana")
    assert bench.admit("ana") == Wait("provider_circuit", MIN_OPEN_SECONDS)


def test_success_resets_the_count(bench: Bench) -> None:
    """Faults before a success do not count, whoever's it is."""
    for _ in range(3):
        bench.fail("ana", "ana", "ben", "ben")
        bench.circuits.succeeded(PROVIDER, "cy")
    assert bench.admit("ana") is None
    assert bench.item() is None


def test_one_probe_at_a_time(bench: Bench) -> None:
    """When it is time, one job may call, and the others wait until that has an outcome."""
    bench.open("ben", "ana")
    bench.clock.now += MIN_OPEN_SECONDS
    other = bench.worker()
    assert bench.admit("ana") is None
    assert [isinstance(other.admit(PROVIDER, owner), Wait) for owner in ("ana", "ben", "cy")] == [True] * 3
    bench.circuits.succeeded(PROVIDER, "ana")
    assert [other.admit(PROVIDER, owner) for owner in ("ana", "ben", "cy")] == [None] * 3
    bench.fail("ben", "ben", "ben", "ben", "ana")
    assert isinstance(bench.admit("ana"), Wait)


def test_open_twice_as_long_after_each_probe(bench: Bench) -> None:
    """A probe that fails doubles the time, up to five minutes."""
    bench.open("ana", "ben")
    found = []
    for _ in range(7):
        wait = bench.admit("ana")
        assert isinstance(wait, Wait)
        found.append(wait.seconds)
        bench.clock.now += wait.seconds
        assert bench.admit("ana") is None
        bench.fail("ana")
    assert found == [10, 20, 40, 80, 160, MAX_OPEN_SECONDS, MAX_OPEN_SECONDS]


def test_faults_of_one_owner(bench: Bench) -> None:
    """If one owner alone has faults, only its jobs wait."""
    bench.open("ana")
    assert isinstance(bench.admit("ana"), Wait)
    assert [bench.admit("ben") for _ in range(3)] == [None] * 3
    bench.circuits.succeeded(PROVIDER, "ben")
    assert bench.admit("ana") is None


def test_owner_without_faults(bench: Bench) -> None:
    """A job of an owner without faults is a probe at once. Its failure does not double the time."""
    bench.open("ana", "ben")
    assert bench.admit("cy") is None
    assert bench.admit("dee") == Wait("provider_circuit", 1)
    bench.fail("cy")
    assert isinstance(bench.admit("cy"), Wait)
    assert bench.admit("dee") is None
    bench.fail("dee")
    assert bench.admit("ana") == Wait("provider_circuit", MIN_OPEN_SECONDS)


def test_many_owners_with_faults() -> None:
    """If very many owners had faults, nobody is a probe before the time."""
    bench = Bench()
    bench.fail(*(f"owner-{number}" for number in range(MAX_OWNERS)))
    assert isinstance(bench.admit("cy"), Wait)
    bench.clock.now += MIN_OPEN_SECONDS
    assert bench.admit("cy") is None


def test_probe_that_is_given_back(bench: Bench) -> None:
    """Another job may be the probe then."""
    bench.open("ana", "ben")
    bench.clock.now += MIN_OPEN_SECONDS
    assert bench.admit("ana") is None
    bench.circuits.give_back(PROVIDER, "ana")
    assert bench.worker().admit(PROVIDER, "ben") is None
    assert isinstance(bench.admit("ana"), Wait)


def test_lost_probe(bench: Bench) -> None:
    """A probe without an outcome makes room for another one after a minute, and then no longer ends that one."""
    bench.open("ana", "ben")
    bench.clock.now += MIN_OPEN_SECONDS
    assert bench.admit("ana") is None
    other = bench.worker()
    bench.clock.now += PROBE_SECONDS - 1
    assert isinstance(other.admit(PROVIDER, "ben"), Wait)
    bench.clock.now += 1
    assert other.admit(PROVIDER, "ben") is None
    bench.circuits.give_back(PROVIDER, "ana")
    assert isinstance(bench.worker().admit(PROVIDER, "ben"), Wait)


def test_waits_are_spread() -> None:
    """Jobs that wait do not come back at the same time."""
    bench = Bench()
    bench.open("ana", "ben")
    circuits = Circuits(bench.table, bench.name, clock=bench.clock)
    waits = {wait.seconds for _ in range(50) if (wait := circuits.admit(PROVIDER, "ana"))}
    assert len(waits) > 5
    assert min(waits) > MIN_OPEN_SECONDS
    assert max(waits) <= 2 * MIN_OPEN_SECONDS


def test_cost_of_a_healthy_provider() -> None:
    """A call costs one read, and its success no write."""

    class ReadOnly(MemoryTable):
        reads = 0

        def get_item(self, **request: Any) -> dict[str, Any]:
            self.reads += 1
            return super().get_item(**request)

        update_item = delete_item = None  # type: ignore[assignment]

    bench = Bench(ReadOnly())
    for _ in range(3):
        assert bench.admit("ana") is None
        bench.circuits.succeeded(PROVIDER, "ana")
    assert bench.table.reads == 3


# Any jobs of some owners, on two workers


@dataclass(frozen=True)
class Call:
    worker: int
    owner: str
    at: float
    is_probe: bool


OWNERS = ["ana", "ben", "cy", "dee"]
workers, owners = st.integers(0, 1), st.sampled_from(OWNERS)


class Provider(RuleBasedStateMachine):
    """`faults`: their owners, since the last success that counts. `saw`: the workers whose next success counts."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.workers = [self.bench.worker(), self.bench.worker()]
        self.saw = [False, False]
        self.calls: list[Call] = []
        self.faults: list[str] = []

    @property
    def is_open(self) -> bool:
        return len(self.faults) >= FAULTS

    @rule(worker=workers, owner=owners)
    def ask(self, worker: int, owner: str) -> None:
        """A job waits only if the circuit is open, and not because of the faults of one other owner."""
        others = set(self.faults) - {owner}
        concerned = self.is_open and (owner in self.faults or len(others) > 1)
        answer = self.workers[worker].admit(PROVIDER, owner)
        self.saw[worker] = bool(self.faults)
        if answer is None:
            self.calls.append(Call(worker, owner, self.bench.clock.now, is_probe=concerned))
        else:
            assert concerned
            assert answer.reason == "provider_circuit"
            assert 1 <= answer.seconds <= MAX_OPEN_SECONDS
            assert owner in self.faults or self.recent_probes(), (
                "nothing holds up a job of an owner without faults"
            )

    def recent_probes(self) -> list[Call]:
        """Those that have no outcome and are not lost."""
        return [call for call in self.calls if call.is_probe and self.bench.clock.now < call.at + PROBE_SECONDS]

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), outcome=st.sampled_from(["succeeded", "failed", "failed", "failed", "give_back"]))
    def end(self, data: st.DataObject, outcome: str) -> None:
        # of several calls of an owner on one worker, the probe ends first: a worker makes one call at a time
        call = data.draw(st.sampled_from(sorted(self.calls, key=lambda each: not each.is_probe)[:2]))
        self.calls.remove(call)
        getattr(self.workers[call.worker], outcome)(PROVIDER, call.owner)
        if outcome == "failed":
            self.faults.append(call.owner)
            self.saw[call.worker] = True
        elif outcome == "succeeded" and self.saw[call.worker]:
            self.faults.clear()
            self.saw[call.worker] = False
            self.calls = [Call(each.worker, each.owner, each.at, is_probe=False) for each in self.calls]

    @rule(seconds=st.sampled_from([0.5, 5, 10, 59, 60, 300]))
    def wait(self, seconds: float) -> None:
        self.bench.clock.now += seconds

    @invariant()
    def one_probe(self) -> None:
        """Never two at a time."""
        assert len(self.recent_probes()) <= 1

    @invariant()
    def item(self) -> None:
        """It exists while there are faults, and names the owners."""
        item = self.bench.item()
        assert (item or {}).get("owners", set()) == set(self.faults)
        assert ("open_until" in (item or {})) == self.is_open

    def teardown(self) -> None:
        """Whatever happened: a job calls within the longest time, and its success closes the circuit for all."""
        self.bench.clock.now += max(MAX_OPEN_SECONDS, PROBE_SECONDS)
        assert self.workers[0].admit(PROVIDER, "ana") is None
        self.workers[0].succeeded(PROVIDER, "ana")
        assert [worker.admit(PROVIDER, owner) for worker in self.workers for owner in OWNERS] == [None] * 8


TestProvider = Provider.TestCase
TestProvider.settings = settings(max_examples=60, stateful_step_count=40)
