"""Calls of models for jobs (core.llm.caller)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import events
from core.errors import (
    ContentFiltered,
    ContextOverflow,
    DeadlineExceeded,
    JobClosed,
    MalformedAnswer,
    ModelQuotaExceeded,
    ModelThrottled,
    ModelUnavailable,
    Postponed,
    StreamCut,
)
from core.jobs import Job, Wait
from core.jobs.usage import UsageStore, usage_view
from core.llm import caller
from core.llm.caller import ModelCaller, throttle_wait
from core.llm.catalog import Model
from core.llm.in_flight import ModelCalls
from core.llm.provider import End, Message, ModelRequest, TextPart, Usage
from tests.unit.core.memory_blobs import MemoryBlobs
from tests.unit.examples import NOW, FakeClock, job

MODEL = Model(name="bedrock/amazon.nova-lite-v1:0")
REQUEST = ModelRequest(model=MODEL.id, messages=(Message(role="user", content="Say hello."),), max_tokens=100)
END = End(stop_reason="end", usage=Usage(7, 3))
Part = TextPart | End | Exception | Callable[[], None]


class ScriptedAnswer:
    """Yields parts, raises errors, and calls functions in between."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts, self.closed = parts, threading.Event()

    def __iter__(self) -> Iterator[TextPart | End]:
        for part in self._parts:
            if isinstance(part, Exception):
                raise part
            if isinstance(part, TextPart | End):
                yield part
            else:
                part()

    def close(self) -> None:
        self.closed.set()


@dataclass
class ScriptedProvider:
    """Answers each call with the next script."""

    scripts: list[Sequence[Part]]
    name: str = "bedrock"
    requests: list[ModelRequest] = field(default_factory=list)
    answers: list[ScriptedAnswer] = field(default_factory=list)

    def call(self, request: ModelRequest, *, seconds: float) -> ScriptedAnswer:
        self.requests.append(request)
        self.answers.append(ScriptedAnswer(self.scripts.pop(0)))
        return self.answers[-1]


class RecordingGate:
    """Admits everything, and records what it is told."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []

    def admit(self, model: Model, *, owner: str, tokens: int, waited: bool) -> Wait | None:
        self.log.append(("admit", owner, tokens, waited))
        return None

    def settle(self, model: Model, *, reserved: int, used: int) -> None:
        self.log.append(("settle", reserved, used))

    def succeeded(self, model: Model, owner: str) -> None:
        self.log.append(("succeeded",))

    def failed(self, model: Model, owner: str) -> None:
        self.log.append(("failed",))

    def released(self, model: Model, owner: str) -> None:
        self.log.append(("released",))


class Bench:
    def __init__(self, dynamodb: Any, table: str) -> None:
        self.provider = ScriptedProvider([])
        self.gate, self.blobs, self.clock = RecordingGate(), MemoryBlobs(), FakeClock()
        self.table = dynamodb, table
        self.usage_store = UsageStore(dynamodb, table)
        self.caller = ModelCaller(
            lambda name: self.provider,
            self.gate,  # type: ignore[arg-type]
            ModelCalls(dynamodb, table, per_owner=1, clock=self.clock),
            self.blobs,
            self.usage_store,
            clock=self.clock,
        )
        self.job: Job = replace(job(), kind="completion", subject={}, created_at=events.timestamp(NOW))
        self.heard: list[str] = []

    def call(self, *parts: Part, model: Model = MODEL, request: ModelRequest = REQUEST, **options: Any) -> Any:
        self.provider.scripts.append(parts)
        defaults = {"require_open": lambda: None, "seconds_left": lambda: 300.0, "on_text": self.heard.append}
        return self.caller.call(self.job, model, request, name="one", **{**defaults, **options})

    @property
    def usage(self) -> dict[str, Any] | None:
        client, table = self.table
        key = {"pk": f"JOB#{self.job.job_id}", "sk": "USAGE"}
        return usage_view(client.get_item(TableName=table, Key=key).get("Item"))

    def told(self, *names: str) -> list[tuple[Any, ...]]:
        return [entry for entry in self.gate.log if entry[0] in names]


@pytest.fixture
def bench(dynamodb: Any, jobs_table: str) -> Bench:
    return Bench(dynamodb, jobs_table)


def texts(*parts: str) -> list[Part]:
    return [TextPart(part) for part in parts]


def test_answer(bench: Bench) -> None:
    """Text is passed on as it comes; the answer has the whole text, what it used and what it costs."""
    made = bench.call(*texts("Hel", "lo."), END)
    assert (made.text, bench.heard) == ("Hello.", ["Hel", "lo."])
    assert (made.usage, made.stop_reason, made.model) == (Usage(7, 3), "end", MODEL.name)
    assert made.cost_usd is not None
    assert made.cost_usd > 0
    assert not made.cost_estimated
    assert bench.usage == {
        "calls": 1,
        "input_tokens": 7,
        "output_tokens": 3,
        "cost_usd": made.cost_usd,
        "cost_estimated": False,
    }


def test_recorded_answer(bench: Bench) -> None:
    """An answer is recorded with the call, and read again as it was."""
    assert bench.caller.recorded(bench.job, "one") is None
    made = bench.call(*texts("Hello."), END)
    assert bench.caller.recorded(bench.job, "one") == made


def test_recorded_before_accounts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that was paid for is not lost when its usage cannot be written."""
    monkeypatch.setattr(bench.usage_store, "_table", "no such table")
    made = bench.call(*texts("Hello."), END)
    assert bench.caller.recorded(bench.job, "one") == made


def test_tokens_are_settled(bench: Bench) -> None:
    """What was reserved for the input and the longest answer is settled with what the provider counted."""
    bench.call(END)
    (settled,) = bench.told("settle")
    assert settled[1] >= REQUEST.max_tokens
    assert settled[2] == 10
    assert bench.told("succeeded")


def test_missing_usage(bench: Bench) -> None:
    """Without the provider's count, usage is an upper bound and says so."""
    made = bench.call(*texts("Hello."), replace(END, usage=None))
    assert made.cost_estimated
    assert 1 <= made.usage.output_tokens <= REQUEST.max_tokens
    assert bench.usage is not None
    assert bench.usage["cost_estimated"]


def test_unknown_price(bench: Bench) -> None:
    """The cost of a model without a price is unknown, not zero."""
    made = bench.call(END, model=Model(name="bedrock/somebody.own-model"))
    assert made.cost_usd is None
    assert bench.usage is not None
    assert bench.usage["cost_usd"] is None


def test_canceled_between_tokens(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A canceled job's call ends between tokens: what came is recorded, with an upper bound of the cost."""
    monkeypatch.setattr(caller, "CHECK_SECONDS", 0)

    def require_open() -> None:
        if len(bench.heard) >= 3:
            raise JobClosed("the job is canceled")

    with pytest.raises(JobClosed):
        bench.call(*texts(*"abcdefgh"), END, require_open=require_open)
    assert bench.provider.answers[0].closed.is_set()
    assert bench.caller.recorded(bench.job, "one") is None
    used = bench.usage
    assert used is not None
    assert used["partial_text"] == "".join(bench.heard)
    assert "abc" <= used["partial_text"] < "abcdefgh"
    assert (used["output_tokens"], used["cost_estimated"]) == (REQUEST.max_tokens, True)
    assert bench.told("failed", "settle") == []


def test_canceled_while_silent(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection of a canceled job is closed while the provider says nothing."""
    monkeypatch.setattr(caller, "CHECK_SECONDS", 0.02)
    canceled = threading.Event()

    def require_open() -> None:
        if canceled.is_set():
            raise JobClosed("the job is canceled")

    def silence() -> None:
        canceled.set()
        assert bench.provider.answers[0].closed.wait(5)

    with pytest.raises(JobClosed):
        bench.call(*texts("a"), silence, StreamCut("closed", billed=True), require_open=require_open)
    assert bench.told("failed") == []


def test_closed_before_the_call(bench: Bench) -> None:
    """No call is made for a job that has ended."""

    def require_open() -> None:
        raise JobClosed("the job is canceled")

    with pytest.raises(JobClosed):
        bench.call(END, require_open=require_open)
    assert bench.provider.requests == []


@pytest.mark.parametrize(
    ("error", "tells"),
    [
        (ModelUnavailable("503"), "failed"),
        (StreamCut("cut", billed=True), "failed"),
        (MalformedAnswer("not JSON", billed=True), "failed"),
        (ContextOverflow("too long"), "succeeded"),
        (ModelQuotaExceeded("pay"), "succeeded"),
    ],
)
def test_circuit(bench: Bench, error: Exception, tells: str) -> None:
    """Faults of the provider count for its circuit; a refusal shows that it is there."""
    with pytest.raises(type(error)):
        bench.call(error)
    assert bench.told("failed", "succeeded") == [(tells,)]


@pytest.mark.parametrize("error", [ModelUnavailable("503"), ModelThrottled("429"), ContextOverflow("too long")])
def test_unbilled_failure(bench: Bench, error: Exception) -> None:
    """A call that was not computed gives its tokens back and has no usage."""
    with pytest.raises((ModelUnavailable, Postponed, ContextOverflow)):
        bench.call(error)
    assert [settled[2] for settled in bench.told("settle")] == [0]
    assert bench.usage is None


@pytest.mark.parametrize(
    "parts",
    [
        [*texts("Hel"), ModelUnavailable("reset")],
        [*texts("Hel"), ModelThrottled("throttled in mid-stream")],
        [ModelUnavailable("no answer in time", billed=True)],
    ],
)
def test_possibly_billed_failure(bench: Bench, parts: Sequence[Part]) -> None:
    """A call that the provider may bill counts with the most that it may cost, and keeps its tokens."""
    with pytest.raises((ModelUnavailable, Postponed)):
        bench.call(*parts)
    assert bench.told("settle") == []
    assert bench.usage is not None
    assert (bench.usage["output_tokens"], bench.usage["cost_estimated"]) == (REQUEST.max_tokens, True)


def test_throttle(bench: Bench) -> None:
    """After a throttle the attempt is postponed, as long as the provider says."""
    with pytest.raises(Postponed) as caught:
        bench.call(ModelThrottled("slow down", retry_after=120))
    assert 120 <= caught.value.seconds <= 121
    assert (caught.value.reason, str(caught.value)) == ("provider_throttled", "slow down")
    assert bench.told("failed") == []


def test_throttle_beyond_the_deadline(bench: Bench) -> None:
    """A provider that asks to wait beyond the job's deadline fails the job, with the time."""
    with pytest.raises(DeadlineExceeded, match=r"\d{4}-\d\d-\d\dT"):
        bench.call(ModelThrottled("slow down", retry_after=1_400_000))


@given(age=st.floats(0, 1e6))
def test_throttle_backoff(age: float) -> None:
    """Without a hint, the wait grows with the job's age, to five minutes at most."""
    assert 1 <= throttle_wait(None, age=age) <= max(10, min(300, age))


def test_content_filter(bench: Bench) -> None:
    """A filtered answer fails the job with a code of its own; what came is kept."""
    with pytest.raises(ContentFiltered):
        bench.call(*texts("I "), End(stop_reason="content_filter", usage=Usage(7, 1)))
    assert bench.usage is not None
    assert bench.usage["partial_text"] == "I "


def test_schema(bench: Bench) -> None:
    """An answer that should be JSON and is not is a fault; one that max_tokens cut is returned as it is."""
    request = replace(REQUEST, schema={"type": "object"})
    assert bench.call(*texts('{"a": 1}'), END, request=request).text == '{"a": 1}'
    with pytest.raises(MalformedAnswer):
        bench.call(*texts("Sure! {"), END, request=request)
    cut = bench.call(*texts('{"a'), replace(END, stop_reason="max_tokens"), request=request)
    assert (cut.text, cut.stop_reason) == ('{"a', "max_tokens")


def test_idempotency_key(bench: Bench) -> None:
    """A lost worker's call is repeated with the same key, and a failed call with another one."""
    openai = Model(name="openai/gpt-4o-mini")
    bench.call(END, model=openai)
    bench.call(END, model=openai)
    with pytest.raises(ModelUnavailable):
        bench.call(ModelUnavailable("503"), model=openai)
    bench.call(END, model=openai)
    keys = [request.idempotency_key for request in bench.provider.requests]
    assert keys[0] == keys[1] == keys[2] != keys[3]


def test_waiting_jobs(bench: Bench) -> None:
    """The gate learns whether the job has waited for the rate limit before."""
    for reason in (None, "rate_limit"):
        bench.caller.admit(replace(bench.job, waiting_for=reason), MODEL, tokens=9)
    assert bench.told("admit") == [("admit", "ana", 9, False), ("admit", "ana", 9, True)]


def test_watch_ends_with_the_call(bench: Bench) -> None:
    """No thread outlives its call."""
    before = threading.active_count()
    bench.call(*texts("a"), END)
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


def test_nothing_said_is_logged(bench: Bench, logged: Callable[[], list[dict[str, Any]]]) -> None:
    """Prompts and answers are in no log line, also not after failures."""
    bench.call(*texts("the answer"), END)
    with pytest.raises(ModelUnavailable):
        bench.call(*texts("the answer"), ModelUnavailable("503"))
    assert "the answer" not in str(logged())
    assert "Say hello." not in str(logged())


def test_calls_of_one_owner(bench: Bench) -> None:
    """While an owner has as many calls as allowed, its other jobs wait, the longer the longer they have waited."""
    waits: list[Wait | None] = []

    def ask() -> None:
        for seconds in (0, 400):
            since = events.timestamp(bench.clock.now - seconds)
            waiting = replace(bench.job, waiting_for="model_calls", waiting_since=since)
            waits.extend(bench.caller.admit(waiting, MODEL, tokens=9) for _ in range(20))

    bench.call(ask, END)
    assert {wait.reason for wait in waits if wait} == {"model_calls"}
    assert max(wait.seconds for wait in waits[:20] if wait) <= 2 < max(wait.seconds for wait in waits[20:] if wait)
    assert bench.told("admit") == []
    assert bench.caller.admit(bench.job, MODEL, tokens=9) is None


def test_place_is_lost(bench: Bench) -> None:
    """A job that loses the last place to another one after it was admitted calls nothing, and gives all back."""
    postponed: list[BaseException] = []

    def second() -> None:
        with pytest.raises(Postponed) as caught:
            bench.call(END)
        postponed.append(caught.value)

    bench.call(second, END)
    assert [getattr(error, "reason", "") for error in postponed] == ["model_calls"]
    assert len(bench.provider.requests) == 1
    assert [entry[0] for entry in bench.gate.log] == ["settle", "released", "settle", "succeeded"]
    assert bench.usage is not None
    assert bench.usage["calls"] == 1
