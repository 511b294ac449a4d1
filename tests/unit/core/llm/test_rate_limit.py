"""core.llm.rate_limit"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from core import jobs_table
from core.jobs.kind import Wait
from core.llm.catalog import Model, Rate
from core.llm.rate_limit import PARTS, SECOND, TRIES, RateLimiter, Slot
from tests.unit.core.jobs.memory_table import MemoryTable
from tests.unit.examples import NOW, FakeClock

NAME = "bedrock/amazon.nova-lite-v1:0"
RATES = st.builds(Rate, st.integers(1, 12), st.sampled_from([1, 60]))


def model(requests: str | None = None, tokens: str | None = None) -> Model:
    rates = {"requests": requests, "tokens": tokens}
    return Model(name=NAME, **{name: Rate.parse(rate) for name, rate in rates.items() if rate})


class Counting:
    """A client that counts its calls. It calls `before_update` once, between a read and the update after it."""

    def __init__(self, client: Any) -> None:
        self._client, self.exceptions = client, client.exceptions
        self.calls: list[str] = []
        self.before_update: Callable[[], object] | None = None

    def batch_get_item(self, **request: Any) -> Any:
        self.calls.append("read")
        return self._client.batch_get_item(**request)

    def update_item(self, **request: Any) -> Any:
        if self.before_update is not None:
            interrupt, self.before_update = self.before_update, None
            interrupt()
        self.calls.append(request["Key"]["sk"])
        return self._client.update_item(**request)


class Bench:
    """Two workers, with one table and one clock."""

    def __init__(self, model: Model, table: Any = None, name: str = "jobs") -> None:
        self.model, self.clock = model, FakeClock()
        self.client = Counting(table or MemoryTable())
        self.limiter = RateLimiter(self.client, name, clock=self.clock)
        self.other = RateLimiter(self.client._client, name, clock=self.clock)
        self.slots: list[Slot] = []

    def ask(
        self, *, owner: str = "ana", tokens: int = 0, waited: bool = False, by: RateLimiter | None = None
    ) -> Slot | Wait:
        answer = (by or self.limiter).reserve(self.model, owner=owner, tokens=tokens, waited=waited)
        if isinstance(answer, Slot):
            self.slots.append(answer)
        return answer

    def item(self) -> dict[str, Any]:
        key = jobs_table.rate_limit_key(NAME)
        return self.client._client.get_item(TableName="jobs", Key=key).get("Item", {})  # type: ignore[no-any-return]


def windows(times: list[int], seconds: int) -> Iterator[list[int]]:
    """Every half-open window that begins with one of these times."""
    for first in times:
        yield [at for at in times if first <= at < first + seconds * SECOND]


asks = st.tuples(st.floats(0, 2), st.sampled_from(["ana", "ben"]), st.booleans(), st.booleans())


@given(rate=RATES, asks=st.lists(asks, min_size=2, max_size=60))
def test_requests_in_a_window(rate: Rate, asks: list[tuple[float, str, bool, bool]]) -> None:
    """No half-open window has more slots than the limit, also if workers ask between another's read and write."""
    bench = Bench(Model(name=NAME, requests=rate))
    for pause, owner, waited, interrupted in asks:
        bench.clock.now += pause
        if interrupted:
            bench.client.before_update = lambda: bench.ask(owner="cy", waited=True, by=bench.other)
        answer = bench.ask(owner=owner, waited=waited)
        if isinstance(answer, Slot):
            assert 0 <= answer.seconds <= 0.5
            assert answer.at >= int(bench.clock.now * SECOND)
    times = [slot.at for slot in bench.slots]
    assert len(set(times)) == len(times) > 0
    assert max(map(len, windows(times, rate.seconds))) <= rate.limit


LIMIT = 100
Call = tuple[Slot, int]
step = st.one_of(
    st.tuples(st.just("pause"), st.sampled_from([0.001, 0.4, 3, 10, 29, 31, 59.999])),
    st.tuples(st.just("ask"), st.integers(1, LIMIT)),
    st.tuples(st.just("interrupted"), st.integers(1, LIMIT)),
    st.tuples(st.just("settle"), st.floats(0, 1)),
)


@given(steps=st.lists(step, min_size=5, max_size=60), requests=st.sampled_from([None, "3/m", "10/s"]))
@example(steps=[("ask", 10), ("pause", 10), ("ask", 100), ("ask", 90)], requests=None)
@example(steps=[("ask", 40), ("pause", 31), ("ask", 51), ("pause", 29.8), ("ask", 50)], requests=None)
@example(
    steps=[("ask", 50), ("pause", 31), ("ask", 50), ("settle", 0), ("ask", 50), ("pause", 31), ("ask", 50)],
    requests=None,
)
def test_tokens_in_a_window(steps: list[tuple[str, Any]], requests: str | None) -> None:
    """No half-open window has more tokens than the limit at any time: of calls that run, what they have reserved;
    of others, what they used. However many settle, and also if workers ask between each other's read and write.
    """
    bench = Bench(model(requests, f"{LIMIT}/m"))
    tokens: dict[int, int] = {}
    running: list[Call] = []

    def ask(amount: int, by: RateLimiter | None = None) -> None:
        answer = bench.ask(tokens=amount, waited=True, by=by)
        if isinstance(answer, Slot):
            tokens[answer.at] = amount
            running.append((answer, amount))

    for name, value in steps:
        if name == "pause":
            bench.clock.now += value
        elif name == "settle" and running:
            slot, reserved = running.pop(0)
            tokens[slot.at] = int(value * reserved)
            bench.limiter.settle(bench.model, slot, reserved=reserved, used=tokens[slot.at])
        elif name == "interrupted":
            bench.client.before_update = lambda: ask(30, bench.other)
            ask(value)
        elif name == "ask":
            ask(value)
        assert all(sum(map(tokens.__getitem__, window)) <= LIMIT for window in windows(sorted(tokens), 60))


def test_tokens_that_were_not_used() -> None:
    """What a call gives back is free at once, and what it has used is free when the window has passed."""
    bench = Bench(model(tokens="100/m"))
    first = bench.ask(tokens=80)
    assert isinstance(first, Slot)
    assert isinstance(bench.ask(tokens=70), Wait)
    bench.limiter.settle(bench.model, first, reserved=80, used=30)
    assert isinstance(bench.ask(tokens=70), Slot)
    bench.clock.now += 59.9
    assert isinstance(bench.ask(tokens=30), Wait)
    bench.clock.now += 0.2 + 60 / PARTS
    assert isinstance(bench.ask(tokens=30), Slot)


def test_more_tokens_than_reserved() -> None:
    """Tokens beyond the reservation count, too."""
    bench = Bench(model(tokens="100/m"))
    first = bench.ask(tokens=50)
    assert isinstance(first, Slot)
    bench.limiter.settle(bench.model, first, reserved=50, used=60)
    assert isinstance(bench.ask(tokens=41), Wait)
    assert isinstance(bench.ask(tokens=40, waited=True), Slot)


def test_late_settlement() -> None:
    """A call that lasts longer than the window gives nothing back: its tokens do not count any more."""
    bench = Bench(model(tokens="10/s"))
    first = bench.ask(tokens=10)
    assert isinstance(first, Slot)
    bench.clock.now += 5
    bench.ask(tokens=10)
    bench.limiter.settle(bench.model, first, reserved=10, used=0)
    assert isinstance(bench.ask(tokens=1), Wait)
    assert sorted(map(int, (value for name, value in bench.item().items() if name.startswith("t#")))) == [10]


def test_slots_ahead() -> None:
    """A job gets a slot up to half a second ahead, and only a tenth if it asks first and others wait."""
    bench = Bench(model("10/s"))
    first = [bench.ask() for _ in range(7)]
    assert [round(slot.seconds, 1) for slot in first[:6] if isinstance(slot, Slot)] == [0, 0.1, 0.2, 0.3, 0.4, 0.5]
    assert first[6] == Wait("rate_limit", 1)
    bench.clock.now += 0.4
    assert isinstance(bench.ask(), Wait)
    assert isinstance(bench.ask(waited=True), Slot)


def test_waits() -> None:
    """A job waits for as many slots as jobs come before it, in whole seconds, at most 900."""
    bench = Bench(model("1/m"))
    bench.ask()
    waits = [bench.ask() for _ in range(20)]
    assert [wait.seconds for wait in waits if isinstance(wait, Wait)] == [*range(120, 900, 60), *[900] * 7]
    assert bench.ask(waited=True) == Wait("rate_limit", 120)


def test_no_limits() -> None:
    """A model without limits costs no call of DynamoDB."""
    bench = Bench(Model(name=NAME))
    slot = bench.ask(tokens=1_000_000)
    assert slot == Slot(int(NOW * SECOND), 0.0)
    assert isinstance(slot, Slot)
    bench.limiter.settle(bench.model, slot, reserved=10, used=5)
    assert bench.client.calls == []


def test_cost_of_a_free_slot() -> None:
    """A slot costs one read and one write if nobody waits."""
    bench = Bench(model("10/s", "1000/m"), MemoryPages())
    bench.ask(tokens=5)
    assert bench.client.calls == ["read", "RATE"]


class MemoryPages(MemoryTable):
    """Returns all items of a batch at once, as DynamoDB does with two small ones."""

    def batch_get_item(self, *, RequestItems: dict[str, Any]) -> dict[str, Any]:
        ((table, request),) = RequestItems.items()
        found = [self.get_item(TableName=table, Key=key).get("Item") for key in request["Keys"]]
        return {"Responses": {table: [item for item in found if item]}}


def test_lost_race() -> None:
    """A job whose slot another one takes first gets the next slot."""
    bench = Bench(model("10/s"))
    bench.client.before_update = lambda: bench.ask(by=bench.other)
    bench.ask()
    assert [round(slot.seconds, 1) for slot in bench.slots] == [0, 0.1]
    assert bench.client.calls[-2:] == ["RATE", "RATE"]


def test_crowd() -> None:
    """A job whose slot others take as often as it tries waits a second."""
    bench = Bench(model("100/s"))
    bench.ask()
    taken = 0

    def take_it() -> None:
        nonlocal taken
        taken += 1
        bench.ask(by=bench.other, waited=True)
        bench.client.before_update = take_it if taken < TRIES else None

    bench.client.before_update = take_it
    assert bench.ask(waited=True) == Wait("rate_limit", 1)


def test_size_of_the_item() -> None:
    """The item stays below 1 KB, so that a slot costs one write unit, and has no parts of earlier windows."""
    bench = Bench(model("10000/m", "10000000/m"))
    sizes = set()
    for _ in range(PARTS * 5):
        bench.clock.now += 60 / PARTS
        bench.ask(tokens=123_456)
        sizes.add(sum(map(size, bench.item().keys(), bench.item().values())))
    assert max(sizes) < 1024
    assert len(bench.item()) <= 3 + PARTS + 1


def size(name: str, value: Any) -> int:
    """Bytes that DynamoDB counts for an attribute.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
    """
    return len(name) + (len(value) if isinstance(value, str) else len(str(value)) // 2 + 2)


def test_new_limits() -> None:
    """Another limit or another window holds at once, with the tokens that were counted before."""
    bench = Bench(model(tokens="100/m"))
    bench.ask(tokens=90)
    bench.model = model(tokens="50/s")
    bench.clock.now += 2
    assert isinstance(bench.ask(tokens=50), Slot)
    bench.model = model("10/s", "100/m")
    assert isinstance(bench.ask(tokens=60), Wait)


# The table in memory agrees with moto


def script(bench: Bench) -> list[Any]:
    """All updates: slots, waits, lost races, settlements, counts of owners that come, go and become stale."""
    answers: list[Any] = []
    for number in range(14):
        bench.client.before_update = lambda: bench.ask(owner="cy", tokens=1, waited=True, by=bench.other)
        owner = "ben" if number % 3 else "ana"
        answers.append(bench.ask(owner=owner, tokens=5, waited=number > 8))
        bench.clock.now += 0.2
    for slot in bench.slots[:3]:
        bench.limiter.settle(bench.model, slot, reserved=5, used=2)
    bench.clock.now += 100
    answers += [bench.ask(owner="dee", tokens=50) for _ in range(8)]
    return [*answers, *bench.slots, bench.item()]


def test_memory_agrees_with_moto(dynamodb: Any, jobs_table: str) -> None:
    """The same requests have the same outcome in moto and in the table in memory, which the other tests use."""
    limited = model("5/s", "300/m")
    in_memory, in_moto = Bench(limited), Bench(limited, dynamodb, jobs_table)
    assert script(in_moto) == script(in_memory)
    assert any(isinstance(answer, Wait) for answer in script(in_memory))
