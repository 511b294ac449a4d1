"""core.jobs.worker.Worker and the changes it makes, under any interleaving, duplicates and kills"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pydantic import BaseModel

from core import events
from core.errors import Contended, JobClosed, JobFailure, NotDue, Throttled
from core.jobs import (
    Attempt,
    Job,
    JobStore,
    Kind,
    Services,
    Wait,
    begin,
    cancel,
    claim,
    complete,
    defer,
    expire_lease,
    fail,
    give_back,
)
from core.jobs.machine import Change
from core.jobs.worker import MAX_DELAY_SECONDS, MAX_HOPS, Worker, backoff
from tests.unit.core.jobs import meddler
from tests.unit.core.jobs.meddler import Crash, Meddler, Meddling
from tests.unit.core.jobs.memory_table import MemoryTable
from tests.unit.core.memory_blobs import MemoryBlobs
from tests.unit.examples import NOW, FakeClock, job

TABLE = "jobs"
VISIBILITY_SECONDS, MAX_RECEIVES, INVOCATION_SECONDS = 1800, 5, 300
NOT_WAITING = (None, None, None)
ERROR = {"code": "throttled", "message": "Busy."}


class Echoed(BaseModel):
    """What an echo says."""

    text: str


class Asked(BaseModel):
    """An echo was asked for."""


def echo_kind(**facts: Any) -> Kind:
    defaults: dict[str, Any] = {
        "name": "echo",
        "input": Asked,
        "result": Echoed,
        "stages": ("answer",),
        "events": {"requested": Asked, "halfway": Asked, "completed": Echoed},
        "runs_on": "worker",
        "work": lambda attempt: {"text": "hello"},
    }
    return Kind(**defaults | facts)


ECHO = echo_kind()


def at(seconds: float) -> str:
    return events.timestamp(NOW + seconds)


def echo(**facts: Any) -> Job:
    return replace(job(), **{"kind": "echo", "input": {}, "subject": {}} | facts)


def running(**facts: Any) -> Job:
    defaults = {"status": "running", "stage": "answer", "attempts": 1, "lease": "a", "lease_until": at(300)}
    return echo(**defaults | facts)


def waiting(subject: Job) -> tuple[str | None, str | None, str | None]:
    return subject.not_before, subject.waiting_for, subject.waiting_since


# ── one change at a time ─────────────────────────────────────────────────────────────────────────────────────


def decided(change: Change, subject: Job, seconds: float = 0) -> tuple[Job, str | None, dict[str, Any]]:
    transition = change(subject, at(seconds))
    assert transition is not None
    return transition.job, transition.verb, dict(transition.fields)


def test_claim() -> None:
    """An invocation takes a queued job: it runs, held until the invocation's end, and the attempt is counted."""
    waits = {"not_before": at(-1), "waiting_for": "backoff", "waiting_since": at(-9)}
    taken, verb, told = decided(claim(ECHO, lease="a", lease_until=at(300)), echo(attempts=1, **waits))
    assert (verb, told) == ("started", {"attempts": 2})
    assert (taken.status, taken.stage, taken.attempts) == ("running", "answer", 2)
    assert (taken.lease, taken.lease_until, taken.started_at) == ("a", at(300), at(0))
    assert waiting(taken) == NOT_WAITING


def test_claim_after_a_lost_answer() -> None:
    """The invocation that holds the job already has nothing to write."""
    assert claim(ECHO, lease="a", lease_until=at(300))(running(), at(1)) is None


def test_the_first_start_is_kept() -> None:
    """`started_at` is when the job was first taken, however often that happens."""
    taken, _, _ = decided(claim(ECHO, lease="a", lease_until=at(300)), echo(started_at=at(-50)))
    assert taken.started_at == at(-50)


@pytest.mark.parametrize(
    ("subject", "until"),
    [(running(), at(300)), (echo(not_before=at(7)), at(7))],
    ids=["somebody is at it", "it waits"],
)
def test_not_to_be_taken_yet(subject: Job, until: str) -> None:
    """A job that is held, or waits, says until when, to whoever would take or defer it."""
    for change in (claim(ECHO, lease="b", lease_until=at(999)), defer(waiting_for="x", not_before=at(9))):
        with pytest.raises(NotDue) as caught:
            change(subject, at(0))
        assert caught.value.until == until


def test_give_back() -> None:
    """An attempt that has failed queues the job again, says so with the reason, and when the next one may be."""
    queued, verb, told = decided(give_back(ECHO, lease="a", error=ERROR, not_before=at(20)), running(attempts=2))
    assert verb == "retried"
    assert told == {"attempts": 2, "error": {**ERROR, "stage": "answer"}, "not_before": at(20)}
    assert (queued.status, queued.stage, queued.attempts) == ("queued", "queued", 2)
    assert (queued.lease, queued.lease_until) == (None, None)
    assert waiting(queued) == (at(20), "backoff", at(0))


def test_the_last_attempt() -> None:
    """After the last attempt there is none: the job fails with what that attempt failed with."""
    change = give_back(ECHO, lease="a", error=ERROR, not_before=at(20))
    ended, verb, told = decided(change, running(attempts=ECHO.max_attempts))
    assert (verb, ended.status) == ("failed", "failed")
    assert told == {"error": {**ERROR, "stage": "answer"}}
    assert waiting(ended) == NOT_WAITING


def test_no_wait_beyond_the_deadline() -> None:
    """A job waits for its deadline at most, which ends it."""
    subject = running(deadline=at(10))
    queued, _, told = decided(give_back(ECHO, lease="a", error=ERROR, not_before=at(99)), subject)
    assert queued.not_before == told["not_before"] == at(10)
    deferred, _, _ = decided(defer(waiting_for="x", not_before=at(99)), echo(deadline=at(10)))
    assert deferred.not_before == at(10)


def test_expire_lease() -> None:
    """A job whose worker's time is up goes back to the queue; before that nothing happens."""
    assert expire_lease(ECHO)(running(), at(299.999)) is None
    queued, verb, told = decided(expire_lease(ECHO), running(), 300)
    assert (verb, told["error"]["code"], told["attempts"]) == ("retried", "worker_lost", 1)
    assert (queued.status, waiting(queued)) == ("queued", (at(300), None, None))


def test_the_last_worker_is_lost() -> None:
    """A job whose workers were all lost fails with `attempts_exhausted`."""
    ended, verb, told = decided(expire_lease(ECHO), running(attempts=3), 300)
    assert (verb, ended.status, told["error"]["code"]) == ("failed", "failed", "attempts_exhausted")


@pytest.mark.parametrize("subject", [echo(), echo(status="failed"), running(lease_until=None)])
def test_only_a_lease_can_expire(subject: Job) -> None:
    """A job that no worker holds is left alone, and so is one that an execution holds."""
    assert expire_lease(ECHO)(subject, at(10**6)) is None


def test_defer() -> None:
    """A job that waits before anything was tried logs nothing, and says for what and since when."""
    deferred, verb, told = decided(defer(waiting_for="rate_limit", not_before=at(30)), echo())
    assert (verb, told) == (None, {})
    assert waiting(deferred) == (at(30), "rate_limit", at(0))
    again, _, _ = decided(defer(waiting_for="rate_limit", not_before=at(60)), deferred, 30)
    assert waiting(again) == (at(60), "rate_limit", at(0))
    other, _, _ = decided(defer(waiting_for="provider_circuit", not_before=at(60)), deferred, 30)
    assert waiting(other) == (at(60), "provider_circuit", at(30))


@pytest.mark.parametrize("status", ["completed", "failed", "canceled"])
def test_what_has_ended(status: str) -> None:
    """A job that has ended is neither taken, deferred nor given back."""
    ended = running(status=status)
    for change in (
        claim(ECHO, lease="a", lease_until=at(300)),
        defer(waiting_for="x", not_before=at(9)),
        give_back(ECHO, lease="a", error=ERROR, not_before=at(9)),
    ):
        with pytest.raises(JobClosed, match=status):
            change(ended, at(0))


@pytest.mark.parametrize(
    "change",
    [
        give_back(ECHO, lease="b", error=ERROR, not_before=at(9)),
        complete(ECHO, lease="b", result={}),
        fail(code="x", message="y", lease="b"),
    ],
    ids=["give back", "complete", "fail"],
)
def test_another_invocation(change: Change) -> None:
    """An invocation that holds the job no more changes nothing of it."""
    with pytest.raises(JobClosed, match="another execution holds the job"):
        change(running(), at(0))


@given(attempts=st.integers(0, 20))
def test_backoff(attempts: int) -> None:
    """Waits are spread between a second and five minutes, and may be longer after more attempts."""
    assert 1 <= backoff(attempts) <= min(300, 10 * 2**attempts)


# ── the worker ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Message:
    body: dict[str, Any]
    visible_at: float
    receives: int = 0


class Queue:
    """SQS as the worker sees it: it sends, and a message that is not done with comes again, five times."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.messages: list[Message] = []
        self.dead: list[Message] = []
        self.delays: list[int] = []
        self.trouble: Callable[[Callable[[], None]], None] | None = None

    def send_message(self, *, QueueUrl: str, MessageBody: str, MessageGroupId: str, DelaySeconds: int) -> None:
        assert (QueueUrl, MessageGroupId) == ("queue", "ana")

        def send() -> None:
            self.delays.append(DelaySeconds)
            self.messages.append(Message(json.loads(MessageBody), self.clock.now + DelaySeconds))

        trouble, self.trouble = self.trouble, None
        if trouble:
            trouble(send)
        else:
            send()

    def visible(self) -> list[Message]:
        return [message for message in self.messages if message.visible_at <= self.clock.now]

    def receive(self, message: Message) -> None:
        message.receives += 1
        message.visible_at = self.clock.now + VISIBILITY_SECONDS
        if message.receives > MAX_RECEIVES:
            self.messages.remove(message)
            self.dead.append(message)

    def delete(self, message: Message) -> None:
        if message in self.messages:
            self.messages.remove(message)


@dataclass
class Context:
    """An invocation that began now."""

    clock: FakeClock
    end: float

    def get_remaining_time_in_millis(self) -> int:
        return int((self.end - self.clock.now) * 1000)


class Bench:
    """One job of the kind `echo`, its queue, and workers that do what `self.work` says."""

    def __init__(self, **facts: Any) -> None:
        self.clock = FakeClock()
        self.table = MemoryTable()
        self.meddler = Meddler(self.table)
        self.store = self._store(self.meddler)
        self.calm = self._store(self.table)
        self.queue = Queue(self.clock)
        self.work: Callable[[Attempt], dict[str, Any]] = lambda attempt: {"text": "hello"}
        self.wait: Wait | None = None
        self.cleaned = 0
        self.kind = echo_kind(
            **{
                "work": lambda attempt: self.work(attempt),
                "admit": lambda job, services: self.wait,
                "on_ended": self._clean,
            }
            | facts
        )
        self.blobs = MemoryBlobs()
        services = Services(self.blobs, self.table, TABLE)  # type: ignore[arg-type]
        kinds = {"echo": self.kind}
        self.worker = Worker(kinds, self.store, services, self.queue, "queue", clock=self.clock)
        self.job_id = self.calm.submit(self.kind, echo()).job.job_id
        self.queue.messages.append(Message({"job_id": self.job_id, "event": "echo.requested"}, self.clock.now))

    def _store(self, client: Any) -> JobStore:
        return JobStore(client, TABLE, clock=self.clock, sleep=lambda seconds: None)

    def _clean(self, job: Job, services: Services) -> None:
        self.cleaned += 1

    @property
    def job(self) -> Job:
        return self.calm.get(self.job_id)

    def log(self) -> list[str]:
        return [event.name.removeprefix("echo.") for event in self.calm.log(self.job_id)]

    def deliver(self, message: Message | None = None) -> bool:
        """Have a worker handle a message, the first that can be received if none is given; False if it died."""
        message = message or self.queue.visible()[0]
        self.queue.receive(message)
        if message not in self.queue.messages:
            return True
        try:
            self.worker.handle(message.body, Context(self.clock, self.clock.now + INVOCATION_SECONDS))
        except (Crash, Contended):
            return False
        self.queue.delete(message)
        return True

    def drain(self) -> None:
        """Let workers do their work, and the sweep its own, until the job has ended."""
        for _ in range(200):
            if self.job.is_final:
                return
            for message in [*self.queue.dead]:  # the sweep
                self.calm.apply(message.body["job_id"], fail(code="attempts_exhausted", message=""))
            if self.queue.messages:
                self.clock.now = max(self.clock.now, min(one.visible_at for one in self.queue.messages))
                self.deliver()
        raise AssertionError(f"the job does not end: {self.job}")


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_done_at_once(bench: Bench) -> None:
    """A job is taken, done and completed by one message, and its result is the job's."""
    assert bench.deliver()
    assert bench.log() == ["requested", "started", "completed"]
    assert (bench.job.result, bench.job.attempts, bench.queue.messages) == ({"text": "hello"}, 1, [])


def raising(error: BaseException) -> Callable[[Attempt], dict[str, Any]]:
    def work(attempt: Attempt) -> dict[str, Any]:
        raise error

    return work


def test_again_after_an_error(bench: Bench) -> None:
    """What fails is tried again after a while, by a new message; the old one is done with."""
    bench.work = raising(Throttled("The model is busy."))
    assert bench.deliver()
    (message,) = bench.queue.messages
    assert message.body == {"job_id": bench.job_id, "hops": 1}
    assert 1 <= bench.queue.delays[0] <= 20
    assert (bench.job.status, bench.job.waiting_for) == ("queued", "backoff")
    bench.drain()
    assert bench.log() == ["requested", *["started", "retried"] * 2, "started", "failed"]
    assert bench.job.error == {"code": "throttled", "message": "The model is busy.", "stage": "answer"}


def test_errors_that_are_not_ours(bench: Bench) -> None:
    """Of an error that is not ours, neither the log nor the job says anything of its inside."""
    bench.work = raising(ValueError("secret"))
    bench.drain()
    assert "secret" not in str([event.body for event in bench.calm.log(bench.job_id)]) + str(bench.job)
    assert bench.job.error is not None
    assert bench.job.error["code"] == "internal"


def test_a_failure_of_the_job(bench: Bench) -> None:
    """What would fail again ends the job at once, in its own words."""
    bench.work = raising(JobFailure("There is nothing to say."))
    bench.deliver()
    assert bench.log() == ["requested", "started", "failed"]
    assert bench.job.error == {"code": "failed", "message": "There is nothing to say.", "stage": "answer"}


def test_a_copy_of_the_message(bench: Bench) -> None:
    """A copy that comes while the job is done waits until the worker's time is up, as a new message."""
    twin = Message(dict(bench.queue.messages[0].body), bench.clock.now)
    bench.queue.messages.append(twin)

    def work(attempt: Attempt) -> dict[str, Any]:
        bench.clock.now += 100
        assert bench.deliver(twin)
        return {"text": "once"}

    bench.work = work
    bench.deliver()
    assert bench.queue.delays == [INVOCATION_SECONDS - 100]
    bench.clock.now += INVOCATION_SECONDS
    bench.deliver()
    assert bench.log() == ["requested", "started", "completed"]
    assert bench.queue.messages == []


def test_a_worker_that_is_lost(bench: Bench) -> None:
    """The message of a worker that died comes again, and the next one takes over, with one attempt more."""
    bench.work = raising(Crash())
    assert not bench.deliver()
    assert bench.job.status == "running"
    bench.work = lambda attempt: {"text": f"attempt {attempt.job.attempts}"}
    bench.clock.now += VISIBILITY_SECONDS
    assert bench.deliver()
    assert bench.log() == ["requested", "started", "retried", "started", "completed"]
    assert bench.job.result == {"text": "attempt 2"}


def test_workers_that_are_all_lost(bench: Bench) -> None:
    """After three lost workers the fourth fails the job, and does not do it."""
    bench.work = raising(Crash())
    bench.drain()
    assert bench.log() == ["requested", *["started", "retried"] * 2, "started", "failed"]
    assert bench.job.error is not None
    assert bench.job.error["code"] == "attempts_exhausted"


def test_too_early(bench: Bench) -> None:
    """A message that comes before its time is delayed again, whatever made it come."""
    bench.work = raising(Throttled("busy"))
    bench.deliver()
    bench.queue.messages[0].visible_at = bench.clock.now
    bench.deliver()
    assert bench.queue.messages[0].body["hops"] == 2
    assert bench.log() == ["requested", "started", "retried"]


def test_a_wait_before_anything_is_tried(bench: Bench) -> None:
    """A worker that may not begin defers the job: nothing is logged, and the job says why it waits."""
    bench.wait = Wait("rate_limit", 5000)
    bench.deliver()
    assert bench.log() == ["requested"]
    assert (bench.job.waiting_for, bench.job.not_before) == ("rate_limit", at(5000))
    assert bench.queue.delays == [MAX_DELAY_SECONDS]
    bench.clock.now += 5000
    bench.wait = None
    bench.deliver()
    assert (bench.job.status, bench.job.waiting_for) == ("completed", None)


def test_a_takeover_asks_for_admission(bench: Bench) -> None:
    """Who takes over a lost worker's job may not begin either, where it must wait."""
    bench.work = raising(Crash())
    bench.deliver()
    bench.wait = Wait("rate_limit", 60)
    bench.clock.now += VISIBILITY_SECONDS
    bench.deliver()
    assert bench.log() == ["requested", "started", "retried"]
    assert bench.job.waiting_for == "rate_limit"


def test_canceled_while_it_is_done(bench: Bench) -> None:
    """What is canceled meanwhile stays canceled, and what was left behind is removed."""

    def work(attempt: Attempt) -> dict[str, Any]:
        bench.calm.apply(bench.job_id, cancel)
        return {"text": "late"}

    bench.work = work
    assert bench.deliver()
    assert (bench.job.status, bench.job.result, bench.cleaned) == ("canceled", None, 1)


@pytest.mark.parametrize("error", [JobFailure("x"), Throttled("x"), ValueError("x")])
def test_canceled_before_it_fails(bench: Bench, error: Exception) -> None:
    """A job that was canceled meanwhile does not fail, and is not tried again."""

    def work(attempt: Attempt) -> dict[str, Any]:
        bench.calm.apply(bench.job_id, cancel)
        raise error

    bench.work = work
    assert bench.deliver()
    assert (bench.job.status, bench.queue.messages) == ("canceled", [])


def test_a_result_that_is_large(bench: Bench) -> None:
    """A result that is too large for the row is stored, and the event says so."""
    bench.work = lambda attempt: {"text": "x" * 40_000}
    bench.deliver()
    key = f"results/ana/{bench.job_id}/result.json"
    assert (bench.job.result, bench.job.result_key) == (None, key)
    assert json.loads(bench.blobs.get(key)) == {"text": "x" * 40_000}
    assert list(bench.calm.log(bench.job_id))[-1].payload["result_truncated"] is True


def test_steps(bench: Bench) -> None:
    """A step that an earlier attempt has logged is logged no second time."""

    def work(attempt: Attempt) -> dict[str, Any]:
        attempt.step("halfway", n=1)
        if attempt.job.attempts == 1:
            raise Throttled("busy")
        return {"text": "done"}

    bench.work = work
    bench.drain()
    assert bench.log() == ["requested", "started", "halfway", "retried", "started", "completed"]


@pytest.mark.parametrize("verb", ["requested", "completed", "failed", "unheard"])
def test_only_what_is_declared_is_a_step(bench: Bench, verb: str) -> None:
    """Work can log the events between the first and the last of its kind, and none that says more than it may."""
    refused: list[ValueError] = []

    def work(attempt: Attempt) -> dict[str, Any]:
        try:
            attempt.step(verb)
        except ValueError as error:
            refused.append(error)
        return {"text": "done"}

    bench.work = work
    bench.deliver()
    assert f"{verb!r} is no step of echo" in str(refused[0])
    assert bench.log() == ["requested", "started", "completed"]


def test_what_the_kind_gives_is_checked_by_its_own_completion(bench: Bench) -> None:
    """A kind whose completion refuses the result fails the job with its own words."""

    def refuse(job: Job, result: Any, services: Services) -> Any:
        raise JobFailure("That is no answer.")

    bench.worker = replace(bench.worker, kinds={"echo": replace(bench.kind, on_complete=refuse)})
    bench.deliver()
    assert bench.job.error is not None
    assert bench.job.error["message"] == "That is no answer."


def test_a_kind_that_is_no_more(bench: Bench) -> None:
    """A job whose kind was removed fails with a reason instead of waiting for its deadline."""
    bench.worker = replace(bench.worker, kinds={})
    bench.deliver()
    assert bench.job.error is not None
    assert bench.job.error["code"] == "unknown_kind"


def test_a_job_that_is_no_more(bench: Bench) -> None:
    """A message about a job that has expired is done with."""
    bench.table.items.clear()
    assert bench.deliver()
    assert bench.queue.messages == []


def test_a_message_that_never_stops(bench: Bench) -> None:
    """A message that has been passed on too often ends its job."""
    bench.wait = Wait("rate_limit", 1)
    bench.queue.messages[0].body["hops"] = MAX_HOPS
    bench.deliver()
    assert (bench.job.status, bench.queue.messages) == ("failed", [])


def test_begin_is_not_for_workers() -> None:
    """A job that an execution holds is never taken by a worker: it is not due before its deadline."""
    held = begin(ECHO, stage="answer", lease="execution")(echo(), at(0))
    assert held is not None
    with pytest.raises(NotDue) as caught:
        claim(ECHO, lease="b", lease_until=at(300))(held.job, at(0))
    assert caught.value.until == held.job.deadline


# ── any interleaving, duplicates and kills ───────────────────────────────────────────────────────────────────


FAULTS = [meddler.conflict, meddler.check_failed, meddler.in_progress, meddler.crash_before, meddler.crash_after]
ERRORS = [None, Throttled("busy"), Throttled("busy"), ValueError("bug"), Crash(), Crash(), JobFailure("no")]


def die_before(send: Callable[[], None]) -> None:
    raise Crash


def die_after(send: Callable[[], None]) -> None:
    send()
    raise Crash


class Deliveries(RuleBasedStateMachine):
    """Messages of one job come in any order, twice and late; workers die at any call; its owner may cancel."""

    @initialize()
    def submit(self) -> None:
        self.bench = Bench()
        self.holders: list[tuple[str, float]] = []
        self.overlaps: list[float] = []  # an assertion in the middle of a worker would be one more error to it
        self.returned: dict[str, str] = {}
        self.bench.work = self.do
        self.script: list[tuple[float, BaseException | None, bool, bool]] = []

    def do(self, attempt: Attempt) -> dict[str, Any]:
        """Nobody else may be at it whose time is not up; meanwhile time passes, copies come, the owner cancels."""
        clock, mine = self.bench.clock, attempt.job
        self.overlaps += [until for _, until in self.holders if until > clock.now]
        assert mine.lease is not None
        holder = (mine.lease, clock.now + attempt.seconds_left())
        self.holders.append(holder)
        seconds, error, copies, canceled = self.script.pop() if self.script else (1, None, False, False)
        clock.now += min(seconds, attempt.seconds_left())
        if copies and self.bench.queue.visible():
            self.bench.deliver(self.bench.queue.visible()[-1])
        if canceled:
            with contextlib.suppress(JobClosed, Contended):
                self.bench.calm.apply(mine.job_id, cancel)
        if error is not None:
            if not isinstance(error, Crash):
                self.holders.remove(holder)
            raise error
        self.holders.remove(holder)
        self.returned[mine.lease] = f"attempt {mine.attempts}"
        return {"text": self.returned[mine.lease]}

    @precondition(lambda self: bool(self.bench.queue.visible()))
    @rule(
        which=st.integers(0, 5),
        script=st.lists(
            st.tuples(st.sampled_from([0, 1, 299, 300]), st.sampled_from(ERRORS), st.booleans(), st.booleans()),
            max_size=3,
        ),
        troubles=st.lists(st.sampled_from(FAULTS), max_size=3),
        sending=st.sampled_from([None, None, die_before, die_after]),
        wait=st.sampled_from([None, None, None, Wait("rate_limit", 2000)]),
    )
    def receive(
        self,
        which: int,
        script: list[tuple[float, BaseException | None, bool, bool]],
        troubles: list[Meddling],
        sending: Any,
        wait: Wait | None,
    ) -> None:
        self.script, self.bench.wait, self.bench.queue.trouble = script, wait, sending
        self.bench.meddler.plan.extend(troubles)
        visible = self.bench.queue.visible()
        self.bench.deliver(visible[which % len(visible)])
        self.bench.meddler.plan.clear()
        self.script, self.bench.wait, self.bench.queue.trouble = [], None, None

    @precondition(lambda self: bool(self.bench.queue.messages) and len(self.bench.queue.messages) < 4)
    @rule()
    def duplicate(self) -> None:
        """At least once: SQS may deliver a copy."""
        first = self.bench.queue.messages[0]
        self.bench.queue.messages.append(Message(dict(first.body), first.visible_at))

    @rule(seconds=st.sampled_from([1, 30, 299, 300, 900, 1800]))
    def wait(self, seconds: float) -> None:
        self.bench.clock.now += seconds

    @invariant()
    def the_log_says_what_the_job_is(self) -> None:
        log, job = list(self.bench.calm.log(self.bench.job_id)), self.bench.job
        assert [event.sequence for event in log] == list(range(1, job.sequence + 1))
        status, attempts, not_before = "queued", 0, ""
        for event in log[1:]:
            verb, before, status = event.name.removeprefix("echo."), status, event.status or ""
            assert event.payload["status"] == status
            attempts += verb == "started"
            assert verb != "started" or event.timestamp >= not_before
            not_before = event.payload.get("not_before", not_before)
            moves = {"started": ("queued", "running"), "retried": ("running", "queued")}
            assert (before, status) == moves.get(verb, (before, status))
            assert event.is_last == (verb in ("completed", "failed", "canceled"))
        assert (job.status, job.attempts) == (status, attempts)
        assert attempts <= ECHO.max_attempts
        assert [event.is_last for event in log].count(True) == job.is_final

    @invariant()
    def nobody_else_is_at_it(self) -> None:
        assert self.overlaps == [], "two workers at a time"

    @invariant()
    def it_waits_only_in_the_queue(self) -> None:
        job = self.bench.job
        assert (job.lease is not None) == (job.lease_until is not None) or job.is_final
        if job.status != "queued":
            assert waiting(job) == NOT_WAITING
        if job.waiting_for:
            assert job.not_before is not None
            assert job.not_before <= job.deadline

    @invariant()
    def nothing_is_lost(self) -> None:
        """As long as it is open there is a message, here or among the dead."""
        assert self.bench.job.is_final or self.bench.queue.messages or self.bench.queue.dead

    @invariant()
    def delays_are_those_of_sqs(self) -> None:
        assert all(1 <= delay <= MAX_DELAY_SECONDS for delay in self.bench.queue.delays)

    @invariant()
    def the_result_is_the_last_holders(self) -> None:
        job = self.bench.job
        if job.status == "completed":
            assert job.lease is not None
            assert job.result == {"text": self.returned[job.lease]}

    def teardown(self) -> None:
        self.bench.meddler.plan.clear()
        self.bench.drain()
        self.the_log_says_what_the_job_is()


TestDeliveries = Deliveries.TestCase
TestDeliveries.settings = settings(max_examples=250, stateful_step_count=25)
