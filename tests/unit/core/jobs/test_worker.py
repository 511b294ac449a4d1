"""The queue worker and its changes (core.jobs.worker): also in any order, with duplicates and kills."""

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

from core import events
from core.aws.batch import MAX_QUEUE_DELAY_SECONDS
from core.errors import Contended, JobClosed, JobFailure, ModelThrottled, NotDue, Postponed, Throttled
from core.jobs import (
    Attempt,
    Job,
    JobStore,
    Services,
    Wait,
    begin,
    cancel,
    claim,
    complete,
    defer,
    expire_lease,
    fail,
    release_lease,
)
from core.jobs.machine import Change, note_wait, postpone
from core.jobs.queue_messages import JobMessage, read_embedding_message
from core.jobs.worker import MAX_HOPS, Worker, backoff
from tests.unit.core.jobs.fault_injection import FAULTS, Crash, Fault, FaultyClient, in_progress
from tests.unit.core.jobs.memory_table import MemoryTable
from tests.unit.core.memory_blobs import MemoryBlobs
from tests.unit.examples import NOW, FakeClock, echo_kind, job

TABLE = "jobs"
VISIBILITY_SECONDS, MAX_RECEIVES, INVOCATION_SECONDS = 1800, 5, 300
NOT_WAITING = (None, None, None)
ERROR = {"code": "throttled", "message": "Busy."}
THROTTLED = Postponed("provider_throttled", 20, cause=ModelThrottled("Too many tokens."))


ECHO = echo_kind()


def at(seconds: float) -> str:
    return events.timestamp(NOW + seconds)


def echo(**facts: Any) -> Job:
    return replace(job(), **{"kind": "echo", "input": {"text": "hello"}, "subject": {}} | facts)


def running(**facts: Any) -> Job:
    defaults = {"status": "running", "stage": "say", "attempts": 1, "lease": "a", "lease_until": at(300)}
    return echo(**defaults | facts)


def waiting(subject: Job) -> tuple[str | None, str | None, str | None]:
    return subject.not_before, subject.waiting_for, subject.waiting_since


# ── changes ─────────────────────────────────────────────────────────────────────────────────────────────────


def decided(change: Change, subject: Job, seconds: float = 0) -> tuple[Job, str | None, dict[str, Any]]:
    transition = change(subject, at(seconds))
    assert transition is not None
    return transition.job, transition.verb, dict(transition.fields)


def test_claim() -> None:
    """An invocation claims a queued job until it times out, and the attempt is counted."""
    waits = {"not_before": at(-1), "waiting_for": "backoff", "waiting_since": at(-9)}
    taken, verb, fields = decided(claim(ECHO, lease="a", lease_until=at(300)), echo(attempts=1, **waits))
    assert (verb, fields) == ("started", {"attempts": 2})
    assert (taken.status, taken.stage, taken.attempts) == ("running", "say", 2)
    assert (taken.lease, taken.lease_until, taken.started_at) == ("a", at(300), at(0))
    assert waiting(taken) == NOT_WAITING


def test_claim_after_lost_response() -> None:
    """Claiming a job again with the same lease changes nothing."""
    assert claim(ECHO, lease="a", lease_until=at(300))(running(), at(1)) is None


def test_started_at() -> None:
    """`started_at` is the time of the first attempt."""
    taken, _, _ = decided(claim(ECHO, lease="a", lease_until=at(300)), echo(started_at=at(-50)))
    assert taken.started_at == at(-50)


@pytest.mark.parametrize(
    ("subject", "until"),
    [(running(), at(300)), (echo(not_before=at(7)), at(7))],
    ids=["held", "waiting"],
)
def test_not_due(subject: Job, until: str) -> None:
    """A job that is held or waits cannot be claimed or deferred; the error says until when."""
    for change in (claim(ECHO, lease="b", lease_until=at(999)), defer(waiting_for="x", not_before=at(9))):
        with pytest.raises(NotDue) as caught:
            change(subject, at(0))
        assert caught.value.until == until


def test_release_lease() -> None:
    """A failed attempt queues the job again, and logs the reason and the earliest next attempt."""
    queued, verb, fields = decided(
        release_lease(ECHO, lease="a", error=ERROR, not_before=at(20)), running(attempts=2)
    )
    assert verb == "retried"
    assert fields == {"attempts": 2, "error": {**ERROR, "stage": "say"}, "not_before": at(20)}
    assert (queued.status, queued.stage, queued.attempts) == ("queued", "queued", 2)
    assert (queued.lease, queued.lease_until) == (None, None)
    assert waiting(queued) == (at(20), "backoff", at(0))


def test_postpone() -> None:
    """A postponed attempt is not counted; the event has the reason, and the job says what it waits for."""
    error = {"code": "model_throttled", "message": "Too many tokens."}
    change = postpone(lease="a", waiting_for="provider_throttled", not_before=at(20), error=error)
    queued, verb, fields = decided(change, running(attempts=2))
    assert verb == "retried"
    assert fields == {"attempts": 1, "error": {**error, "stage": "say"}, "not_before": at(20)}
    assert (queued.status, queued.stage, queued.attempts, queued.lease) == ("queued", "queued", 1, None)
    assert waiting(queued) == (at(20), "provider_throttled", at(0))


def test_wait_of_running_job() -> None:
    """A running job says what its batches wait for, until they go on."""
    noted, verb, _ = decided(note_wait("rate_limit"), running())
    assert (verb, waiting(noted)) == (None, (None, "rate_limit", at(0)))
    assert note_wait("rate_limit")(noted, at(5)) is None
    assert waiting(decided(note_wait(None), noted)[0]) == NOT_WAITING
    assert note_wait("rate_limit")(echo(), at(0)) is None


def test_wait_ends_with_deadline() -> None:
    """A job does not wait beyond its deadline."""
    subject = running(deadline=at(10))
    queued, _, fields = decided(release_lease(ECHO, lease="a", error=ERROR, not_before=at(99)), subject)
    assert queued.not_before == fields["not_before"] == at(10)
    deferred, _, _ = decided(defer(waiting_for="x", not_before=at(99)), echo(deadline=at(10)))
    assert deferred.not_before == at(10)


def test_expire_lease() -> None:
    """A job whose worker's time is up is queued again, and not before."""
    assert expire_lease(ECHO)(running(), at(299.999)) is None
    queued, verb, fields = decided(expire_lease(ECHO), running(), 300)
    assert (verb, fields["error"]["code"], fields["attempts"]) == ("retried", "worker_lost", 1)
    assert (queued.status, waiting(queued)) == ("queued", (at(300), None, None))


@pytest.mark.parametrize("subject", [echo(), echo(status="failed"), running(lease_until=None)])
def test_jobs_without_expiring_lease(subject: Job) -> None:
    """Jobs that no worker holds, or that an execution holds, do not change."""
    assert expire_lease(ECHO)(subject, at(10**6)) is None


def test_defer() -> None:
    """Deferring a job logs no event, and stores the reason and since when."""
    deferred, verb, fields = decided(defer(waiting_for="rate_limit", not_before=at(30)), echo())
    assert (verb, fields) == (None, {})
    assert waiting(deferred) == (at(30), "rate_limit", at(0))
    again, _, _ = decided(defer(waiting_for="rate_limit", not_before=at(60)), deferred, 30)
    assert waiting(again) == (at(60), "rate_limit", at(0))
    other, _, _ = decided(defer(waiting_for="provider_circuit", not_before=at(60)), deferred, 30)
    assert waiting(other) == (at(60), "provider_circuit", at(30))


@pytest.mark.parametrize("status", ["completed", "failed", "canceled"])
def test_final_job(status: str) -> None:
    """A job that has ended cannot be claimed, deferred or released."""
    ended = running(status=status)
    for change in (
        claim(ECHO, lease="a", lease_until=at(300)),
        defer(waiting_for="x", not_before=at(9)),
        release_lease(ECHO, lease="a", error=ERROR, not_before=at(9)),
    ):
        with pytest.raises(JobClosed, match=status):
            change(ended, at(0))


@pytest.mark.parametrize(
    "change",
    [
        release_lease(ECHO, lease="b", error=ERROR, not_before=at(9)),
        complete(ECHO, lease="b", result={}),
        fail(code="x", message="y", lease="b"),
    ],
    ids=["release", "complete", "fail"],
)
def test_another_invocation(change: Change) -> None:
    """An invocation that does not hold the job cannot release, complete or fail it."""
    with pytest.raises(JobClosed, match="another execution holds the job"):
        change(running(), at(0))


@given(attempts=st.integers(0, 20))
def test_backoff(attempts: int) -> None:
    """The interval has a random length of at least a second, up to a cap that doubles to five minutes."""
    assert 1 <= backoff(attempts) <= min(300, 10 * 2**attempts)


# ── the worker ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Message:
    body: dict[str, Any]
    visible_at: float
    receives: int = 0


class Queue:
    """SQS with a visibility timeout: a message that is not deleted is received up to five times."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.messages: list[Message] = []
        self.dead: list[Message] = []
        self.delays: list[int] = []
        self.fault: Callable[[Callable[[], None]], None] | None = None

    def send_message(self, *, QueueUrl: str, MessageBody: str, MessageGroupId: str, DelaySeconds: int) -> None:
        assert (QueueUrl, MessageGroupId) == ("queue", "ana")

        def send() -> None:
            self.delays.append(DelaySeconds)
            self.messages.append(Message(json.loads(MessageBody), self.clock.now + DelaySeconds))

        fault, self.fault = self.fault, None
        if fault:
            fault(send)
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
    """The context of an invocation that ends at `end`."""

    clock: FakeClock
    end: float

    def get_remaining_time_in_millis(self) -> int:
        return int((self.end - self.clock.now) * 1000)


class Bench:
    """One job of the kind `echo`, its queue, and workers that call `self.work`."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.table = MemoryTable()
        self.client = FaultyClient(self.table)
        self.store = self._store(self.client)
        self.direct = self._store(self.table)
        self.queue = Queue(self.clock)
        self.work: Callable[[Attempt], dict[str, Any]] = lambda attempt: {"said": "hello"}
        self.wait: Wait | Exception | None = None
        self.cleaned = 0
        self.kind = echo_kind(
            work=lambda attempt: self.work(attempt),
            admit=lambda job, services: self._admit(),
            on_ended=self._clean,
        )
        services = Services(MemoryBlobs(), self.table, TABLE)
        kinds = {"echo": self.kind}
        self.worker = Worker(kinds, self.store, services, self.queue, "queue", clock=self.clock)
        self.job_id = self.direct.submit(self.kind, echo()).job.job_id
        self.queue.messages.append(Message({"job_id": self.job_id, "event": "echo.requested"}, self.clock.now))

    def _store(self, client: Any) -> JobStore:
        return JobStore(client, TABLE, clock=self.clock, sleep=lambda seconds: None)

    def _admit(self) -> Wait | None:
        if isinstance(self.wait, Exception):
            raise self.wait
        return self.wait

    def _clean(self, job: Job, services: Services) -> None:
        self.cleaned += 1

    @property
    def job(self) -> Job:
        return self.direct.get(self.job_id)

    def log(self) -> list[str]:
        return [event.name.removeprefix("echo.") for event in self.direct.log.read_all(self.job_id)]

    def deliver(self, message: Message | None = None) -> bool:
        """Have a worker handle a message, by default the first visible one. False if the worker crashed."""
        message = message or self.queue.visible()[0]
        self.queue.receive(message)
        if message not in self.queue.messages:
            return True
        try:
            body = read_embedding_message(json.dumps(message.body))
            assert isinstance(body, JobMessage)
            self.worker.handle(body, Context(self.clock, self.clock.now + INVOCATION_SECONDS))
        except (Crash, Contended):
            return False
        self.queue.delete(message)
        return True

    def drain(self) -> None:
        """Run workers and the reaper until the job has ended."""
        for _ in range(200):
            if self.job.is_final:
                return
            for message in [*self.queue.dead]:  # as the reaper does
                self.direct.apply(message.body["job_id"], fail(code="attempts_exhausted", message=""))
            if self.queue.messages:
                self.clock.now = max(self.clock.now, min(one.visible_at for one in self.queue.messages))
                self.deliver()
        raise AssertionError(f"the job does not end: {self.job}")


@pytest.fixture
def bench() -> Bench:
    return Bench()


def raising(error: BaseException) -> Callable[[Attempt], dict[str, Any]]:
    def work(attempt: Attempt) -> dict[str, Any]:
        raise error

    return work


def test_retry(bench: Bench) -> None:
    """A failed attempt is retried with backoff by a new message, up to the last attempt."""
    bench.work = raising(Throttled("The model is busy."))
    assert bench.deliver()
    (message,) = bench.queue.messages
    assert message.body == {"job_id": bench.job_id, "hops": 0}
    assert 1 <= bench.queue.delays[0] <= 20
    assert (bench.job.status, bench.job.waiting_for) == ("queued", "backoff")
    bench.drain()
    assert bench.log() == ["requested", *["started", "retried"] * 2, "started", "failed"]
    assert bench.job.error == {"code": "throttled", "message": "The model is busy.", "stage": "say"}


def test_internal_error(bench: Bench) -> None:
    """The message of an unexpected exception is neither in the log nor in the job."""
    bench.work = raising(ValueError("secret"))
    bench.drain()
    assert "secret" not in str([event.body for event in bench.direct.log.read_all(bench.job_id)]) + str(bench.job)
    assert bench.job.error is not None
    assert bench.job.error["code"] == "internal"


def test_job_failure(bench: Bench) -> None:
    """A JobFailure ends the job without a retry."""
    bench.work = raising(JobFailure("The text is empty."))
    bench.deliver()
    assert bench.log() == ["requested", "started", "failed"]
    assert bench.job.error == {"code": "failed", "message": "The text is empty.", "stage": "say"}


def test_duplicate_message(bench: Bench) -> None:
    """A copy of a message whose job is running is sent again until the lease expires."""
    copy = Message(dict(bench.queue.messages[0].body), bench.clock.now)
    bench.queue.messages.append(copy)

    def work(attempt: Attempt) -> dict[str, Any]:
        bench.clock.now += 100
        assert bench.deliver(copy)
        return {"said": "once"}

    bench.work = work
    bench.deliver()
    assert bench.queue.delays == [INVOCATION_SECONDS - 100]
    bench.clock.now += INVOCATION_SECONDS
    bench.deliver()
    assert bench.log() == ["requested", "started", "said"]
    assert bench.queue.messages == []


def test_postponed(bench: Bench) -> None:
    """A postponed attempt is made again after its wait, as the same attempt, however often."""
    bench.work = raising(THROTTLED)
    for _ in range(5):
        bench.deliver()
        bench.clock.now += 20
    assert bench.queue.delays == [20] * 5
    assert bench.job.waiting_for == "provider_throttled"
    bench.work = lambda attempt: {"said": f"attempt {attempt.job.attempts}"}
    bench.deliver()
    assert bench.log() == ["requested", *["started", "retried"] * 5, "started", "said"]
    assert bench.job.result == {"said": "attempt 1"}


@pytest.mark.parametrize("error", [Throttled("busy"), THROTTLED], ids=["released", "postponed"])
def test_lost_response_of_release(bench: Bench, error: Exception) -> None:
    """A job that was released keeps a message, also if the response of the release was lost."""

    def work(attempt: Attempt) -> dict[str, Any]:
        bench.client.plan.append(in_progress)
        raise error

    bench.work = work
    assert bench.deliver()
    assert bench.job.status == "queued"
    assert len(bench.queue.messages) == 1
    bench.work = lambda attempt: {"said": "hello"}
    bench.drain()
    assert bench.job.status == "completed"


def test_require_open(bench: Bench) -> None:
    """Work learns between its steps that the job was canceled."""

    def work(attempt: Attempt) -> dict[str, Any]:
        attempt.require_open()
        bench.direct.apply(bench.job_id, cancel)
        attempt.require_open()
        raise AssertionError("not reached")

    bench.work = work
    bench.deliver()
    assert bench.log() == ["requested", "started", "canceled"]


def test_lost_worker(bench: Bench) -> None:
    """The next worker takes over the job of a killed one, with one more attempt."""
    bench.work = raising(Crash())
    assert not bench.deliver()
    assert bench.job.status == "running"
    bench.work = lambda attempt: {"said": f"attempt {attempt.job.attempts}"}
    bench.clock.now += VISIBILITY_SECONDS
    assert bench.deliver()
    assert bench.log() == ["requested", "started", "retried", "started", "said"]
    assert bench.job.result == {"said": "attempt 2"}


def test_lost_workers(bench: Bench) -> None:
    """After three lost workers the job fails."""
    bench.work = raising(Crash())
    bench.drain()
    assert bench.log() == ["requested", *["started", "retried"] * 2, "started", "failed"]
    assert bench.job.error is not None
    assert bench.job.error["code"] == "attempts_exhausted"


def test_early_message(bench: Bench) -> None:
    """A message that is received before the job is due is delayed again."""
    bench.work = raising(Throttled("busy"))
    bench.deliver()
    bench.queue.messages[0].visible_at = bench.clock.now
    bench.deliver()
    assert len(bench.queue.delays) == 2
    assert bench.log() == ["requested", "started", "retried"]


def test_wait(bench: Bench) -> None:
    """A job that its kind does not admit is deferred with the reason, and no event is logged."""
    bench.wait = Wait("rate_limit", 5000)
    bench.deliver()
    assert bench.log() == ["requested"]
    assert (bench.job.waiting_for, bench.job.not_before) == ("rate_limit", at(5000))
    assert bench.queue.delays == [MAX_QUEUE_DELAY_SECONDS]
    bench.clock.now += 5000
    bench.wait = None
    bench.deliver()
    assert (bench.job.status, bench.job.waiting_for) == ("completed", None)


def test_wait_after_lost_worker(bench: Bench) -> None:
    """The kind must admit the job of a lost worker, too."""
    bench.work = raising(Crash())
    bench.deliver()
    bench.wait = Wait("rate_limit", 60)
    bench.clock.now += VISIBILITY_SECONDS
    bench.deliver()
    assert bench.log() == ["requested", "started", "retried"]
    assert bench.job.waiting_for == "rate_limit"


def test_cancel_during_work(bench: Bench) -> None:
    """A job that is canceled during its work stays canceled, and is cleaned up again."""

    def work(attempt: Attempt) -> dict[str, Any]:
        bench.direct.apply(bench.job_id, cancel)
        return {"said": "late"}

    bench.work = work
    assert bench.deliver()
    assert (bench.job.status, bench.job.result, bench.cleaned) == ("canceled", None, 1)


@pytest.mark.parametrize("error", [JobFailure("x"), Throttled("x"), ValueError("x")])
def test_cancel_before_failure(bench: Bench, error: Exception) -> None:
    """A canceled job does not fail and is not retried."""

    def work(attempt: Attempt) -> dict[str, Any]:
        bench.direct.apply(bench.job_id, cancel)
        raise error

    bench.work = work
    assert bench.deliver()
    assert (bench.job.status, bench.queue.messages) == ("canceled", [])


@pytest.mark.parametrize("verb", ["requested", "said", "failed", "unknown"])
def test_undeclared_steps(bench: Bench, verb: str) -> None:
    """Only events between the first and the last of the kind can be logged as steps."""
    errors: list[ValueError] = []

    def work(attempt: Attempt) -> dict[str, Any]:
        try:
            attempt.step(verb)
        except ValueError as error:
            errors.append(error)
        return {"said": "done"}

    bench.work = work
    bench.deliver()
    assert f"{verb!r} is not a step of echo" in str(errors[0])
    assert bench.log() == ["requested", "started", "said"]


def test_error_in_on_complete(bench: Bench) -> None:
    """A JobFailure in on_complete fails the job with its message."""

    def refuse(job: Job, result: Any, services: Services) -> Any:
        raise JobFailure("The result is invalid.")

    bench.worker = replace(bench.worker, kinds={"echo": replace(bench.kind, on_complete=refuse)})
    bench.deliver()
    assert bench.job.error is not None
    assert bench.job.error["message"] == "The result is invalid."


def test_unknown_kind(bench: Bench) -> None:
    """A job whose kind was removed fails at once."""
    bench.worker = replace(bench.worker, kinds={})
    bench.deliver()
    assert bench.job.error is not None
    assert bench.job.error["code"] == "unknown_kind"


def test_expired_job(bench: Bench) -> None:
    """A message about an expired job is deleted."""
    bench.table.items.clear()
    assert bench.deliver()
    assert bench.queue.messages == []


def test_max_hops(bench: Bench) -> None:
    """A message that was sent again too often after failures of AWS fails its job; waits do not count."""
    bench.queue.messages[0].body["hops"] = MAX_HOPS
    bench.wait = Wait("rate_limit", 1)
    bench.deliver()
    assert bench.job.status == "queued"
    bench.clock.now += 1
    bench.wait = Throttled("the service is busy")
    bench.deliver()
    assert (bench.job.status, bench.queue.messages) == ("failed", [])


def test_job_of_an_execution() -> None:
    """A worker cannot claim a job that an execution holds."""
    held = begin(ECHO, stage="say", lease="execution")(echo(), at(0))
    assert held is not None
    with pytest.raises(NotDue) as caught:
        claim(ECHO, lease="b", lease_until=at(300))(held.job, at(0))
    assert caught.value.until == held.job.deadline


# ── any order, duplicates and kills ──────────────────────────────────────────────────────────────────────────


ERRORS = [None, Throttled("busy"), THROTTLED, THROTTLED, ValueError("bug"), Crash(), Crash(), JobFailure("no")]


def crash_before(send: Callable[[], None]) -> None:
    raise Crash


def crash_after(send: Callable[[], None]) -> None:
    send()
    raise Crash


class Deliveries(RuleBasedStateMachine):
    """Messages of a job in any order, duplicated and late; workers crash in any call; the owner may cancel."""

    @initialize()
    def submit(self) -> None:
        self.bench = Bench()
        self.holders: list[tuple[str, float]] = []
        self.overlaps: list[float] = []  # asserted later: the worker would handle an AssertionError
        self.returned: dict[str, str] = {}
        self.bench.work = self.do
        self.script: list[tuple[float, BaseException | None, bool, bool]] = []

    def do(self, attempt: Attempt) -> dict[str, Any]:
        """The work: time passes, copies are received, and the owner cancels. Records overlapping leases."""
        clock, job = self.bench.clock, attempt.job
        self.overlaps += [until for _, until in self.holders if until > clock.now]
        assert job.lease is not None
        holder = (job.lease, clock.now + attempt.seconds_left())
        self.holders.append(holder)
        seconds, error, copies, canceled = self.script.pop() if self.script else (1, None, False, False)
        clock.now += min(seconds, attempt.seconds_left())
        if copies and self.bench.queue.visible():
            self.bench.deliver(self.bench.queue.visible()[-1])
        if canceled:
            with contextlib.suppress(JobClosed, Contended):
                self.bench.direct.apply(job.job_id, cancel)
        if error is not None:
            if not isinstance(error, Crash):
                self.holders.remove(holder)
            raise error
        self.holders.remove(holder)
        self.returned[job.lease] = f"attempt {job.attempts}"
        return {"said": self.returned[job.lease]}

    @precondition(lambda self: bool(self.bench.queue.visible()))
    @rule(
        which=st.integers(0, 5),
        script=st.lists(
            st.tuples(st.sampled_from([0, 1, 299, 300]), st.sampled_from(ERRORS), st.booleans(), st.booleans()),
            max_size=3,
        ),
        faults=st.lists(st.sampled_from(FAULTS), max_size=3),
        sending=st.sampled_from([None, None, crash_before, crash_after]),
        wait=st.sampled_from([None, None, None, Wait("rate_limit", 2000)]),
    )
    def receive(
        self,
        which: int,
        script: list[tuple[float, BaseException | None, bool, bool]],
        faults: list[Fault],
        sending: Any,
        wait: Wait | None,
    ) -> None:
        self.script, self.bench.wait, self.bench.queue.fault = script, wait, sending
        self.bench.client.plan.extend(faults)
        visible = self.bench.queue.visible()
        self.bench.deliver(visible[which % len(visible)])
        self.bench.client.plan.clear()
        self.script, self.bench.wait, self.bench.queue.fault = [], None, None

    @precondition(lambda self: bool(self.bench.queue.messages) and len(self.bench.queue.messages) < 4)
    @rule()
    def duplicate(self) -> None:
        """SQS delivers at least once."""
        first = self.bench.queue.messages[0]
        self.bench.queue.messages.append(Message(dict(first.body), first.visible_at))

    @rule(seconds=st.sampled_from([1, 30, 299, 300, 900, 1800]))
    def wait(self, seconds: float) -> None:
        self.bench.clock.now += seconds

    @invariant()
    def log_matches_job(self) -> None:
        log, job = list(self.bench.direct.log.read_all(self.bench.job_id)), self.bench.job
        assert [event.sequence for event in log] == list(range(1, job.sequence + 1))
        status, attempts, not_before = "queued", 0, ""
        for event in log[1:]:
            verb, before, status = event.name.removeprefix("echo."), status, event.status or ""
            assert event.payload["status"] == status
            attempts = event.payload["attempts"] if verb == "retried" else attempts + (verb == "started")
            assert verb != "started" or event.timestamp >= not_before
            not_before = event.payload.get("not_before", not_before)
            moves = {"started": ("queued", "running"), "retried": ("running", "queued")}
            assert (before, status) == moves.get(verb, (before, status))
            assert event.is_last == (verb in ("said", "failed", "canceled"))
        assert (job.status, job.attempts) == (status, attempts)
        assert attempts <= ECHO.max_attempts
        assert [event.is_last for event in log].count(True) == job.is_final

    @invariant()
    def leases_do_not_overlap(self) -> None:
        assert self.overlaps == [], "two workers hold the job"

    @invariant()
    def only_queued_jobs_wait(self) -> None:
        job = self.bench.job
        assert (job.lease is not None) == (job.lease_until is not None) or job.is_final
        if job.status != "queued":
            assert waiting(job) == NOT_WAITING
        if job.waiting_for:
            assert job.not_before is not None
            assert job.not_before <= job.deadline

    @invariant()
    def open_job_has_a_message(self) -> None:
        """An open job has a message in the queue or in the dead-letter queue."""
        assert self.bench.job.is_final or self.bench.queue.messages or self.bench.queue.dead

    @invariant()
    def delays_are_valid(self) -> None:
        assert all(1 <= delay <= MAX_QUEUE_DELAY_SECONDS for delay in self.bench.queue.delays)

    @invariant()
    def result_is_that_of_the_last_lease(self) -> None:
        job = self.bench.job
        if job.status == "completed":
            assert job.lease is not None
            assert job.result == {"said": self.returned[job.lease]}

    def teardown(self) -> None:
        self.bench.client.plan.clear()
        self.bench.drain()
        self.log_matches_job()


TestDeliveries = Deliveries.TestCase
TestDeliveries.settings = settings(max_examples=250, stateful_step_count=25)
