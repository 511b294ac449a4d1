"""Jobs, their changes and submissions (core.jobs.store)."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from moto import mock_aws

from core import events, ids
from core.aws import clients
from core.errors import ConditionFailed, Conflict, Contended, InvalidRequest, JobClosed, NotFound
from core.jobs import FINAL, Idempotency, Job, JobStore, begin, cancel, complete, fail, fingerprint, step
from core.jobs.kind import REPEATABLE
from core.jobs.machine import Change, Transition, expire, report_progress, wait_for_place
from core.jobs.progress import EVENT_SECONDS
from core.jobs.store import MAX_CONTENTIONS
from kinds.document.index.catalog import Catalog
from kinds.document.kind import DOCUMENT
from kinds.replay.kind import REPLAY
from tests.unit import conftest
from tests.unit.core.jobs import fault_injection
from tests.unit.core.jobs.conftest import TABLE, A, B, Bench, report_progress_now
from tests.unit.core.jobs.fault_injection import FAULTS, Crash, Fault, FaultyClient, before_write
from tests.unit.core.jobs.memory_table import MemoryTable, canceled
from tests.unit.examples import DAY, NOW, FakeClock, document, job, replay


def key(name: str = "key", body: Any = None, seconds: int = DAY) -> Idempotency:
    return Idempotency(name, fingerprint(body), seconds)


# ── concurrent writers with faults ──────────────────────────────────────────────────────────────────────────

leases = st.sampled_from([A, B])

stages = st.sampled_from(DOCUMENT.all_stages[1:])

changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(begin, st.just(DOCUMENT), stage=stages, lease=leases),
    st.builds(step, verb=st.sampled_from(["chunked", "embedded"]), lease=leases, next_stage=stages, n=st.just(1)),
    st.builds(complete, st.just(DOCUMENT), lease=leases, result=st.just({"chunks": 1})),
    st.builds(fail, code=st.just("internal"), message=st.text(max_size=3), stage=st.none() | stages),
    st.just(cancel),
    st.just(wait_for_place),
    st.just(expire),
    st.builds(report_progress, st.integers(0, 3), st.just(3)),
)

faults = st.sampled_from(FAULTS)
EXPECTED = (JobClosed, Conflict, Contended, ConditionFailed, Crash)


class Writers(RuleBasedStateMachine):
    """Executions with and without the lease, the owner and the reaper write to one job, with faults."""

    planned = Bundle("planned")

    @initialize()
    def submit(self) -> None:
        self.bench = Bench(self.new_table())
        self.job_id = self.bench.submitted().job_id
        self.before_last = self.read()

    def new_table(self) -> Any:
        return MemoryTable()

    @rule(target=planned, change=changes)
    def plan(self, change: Change) -> Change:
        """A planned change can be carried out any number of times, since messages are duplicated and late."""
        return change

    @rule(change=planned)
    def carry_out(self, change: Change) -> None:
        self.attempt(change)

    @rule(lease=leases, stage=stages)
    def work(self, lease: str, stage: str) -> None:
        """Begins stages, so that runs get beyond the first refusals."""
        self.attempt(begin(DOCUMENT, stage=stage, lease=lease))

    @rule(change=planned, faults=st.lists(faults, min_size=1, max_size=MAX_CONTENTIONS + 1))
    def carry_out_with_faults(self, change: Change, faults: list[Fault]) -> None:
        self.attempt(change, *faults)

    @rule(change=planned, others=st.lists(planned, min_size=1, max_size=3))
    def race(self, change: Change, others: list[Change]) -> None:
        """Other writers change the job between reading and writing, more than once."""
        self.attempt(change, *(before_write(functools.partial(self.attempt_of_other, other)) for other in others))

    @rule(
        batch=st.integers(0, 2),
        seconds=st.integers(0, 2 * EVENT_SECONDS),
        faults=st.lists(faults, max_size=2),
    )
    def count_a_batch(self, batch: int, seconds: int, faults: list[Fault]) -> None:
        self.bench.clock.now += seconds
        self.bench.client.plan.extend(faults)
        with contextlib.suppress(*EXPECTED):
            self.bench.store.progress.mark_batch(self.bench.store.get(self.job_id), batch, total=3)
        self.bench.client.plan.clear()

    @rule(faults=st.lists(faults, max_size=2), others=st.lists(planned, max_size=2))
    def admit(self, faults: list[Fault], others: list[Change]) -> None:
        """A place on a state machine is taken, while other writers change the job."""
        self.bench.client.plan.extend(
            [*faults, *(before_write(functools.partial(self.attempt_of_other, other)) for other in others)]
        )
        with contextlib.suppress(*EXPECTED):
            admitted = self.bench.store.admit(self.bench.store.get(self.job_id), limit=1)
            assert admitted == (self.bench.item("OWNER#ana", f"RUNNING#{self.job_id}") is not None)
        self.bench.client.plan.clear()

    def attempt(self, change: Change, *faults: Fault) -> None:
        self.bench.clock.now += 0.25
        self.bench.client.plan.extend(faults)
        try:
            returned = self.bench.store.apply(self.job_id, change)
        except EXPECTED:
            pass
        else:
            assert returned == self.bench.store.get(self.job_id)
        self.bench.client.plan.clear()

    def attempt_of_other(self, change: Change) -> None:
        with contextlib.suppress(*EXPECTED):
            self.bench.other_store.apply(self.job_id, change)

    def read(self) -> tuple[Job, list[events.Event]]:
        return self.bench.store.get(self.job_id), self.bench.store.log.read(self.job_id)

    @invariant()
    def log_matches_job(self) -> None:
        (before, earlier), (now, log) = self.before_last, self.read()
        check_log(now, log)
        check_progress(before, now)
        assert log[: len(earlier)] == earlier, "logged events do not change"
        assert (now == before) == (now.version == before.version), "a change has a new version"
        assert now.version - before.version >= len(log) - len(earlier), "each event has a version"
        self.before_last = (now, log)

    @invariant()
    def open_jobs_are_counted(self) -> None:
        is_open = self.bench.store.get(self.job_id).status not in FINAL
        assert (self.bench.item("OWNER#ana", f"OPEN#{self.job_id}") is not None) == is_open
        assert self.bench.store.open_jobs.count("ana", limit=9) == is_open
        assert len(self.bench.store.open_jobs.running("ana")) <= is_open

    @invariant()
    def index_contains_open_jobs_only(self) -> None:
        row = self.bench.item(f"JOB#{self.job_id}", "META") or {}
        assert ("gsi2pk" in row) == ("gsi2sk" in row) == (row["status"] not in FINAL)


def check_log(now: Job, log: list[events.Event]) -> None:
    """Sequences have no gap, no event is logged twice, and the last event matches the job's status."""
    assert [event.sequence for event in log] == list(range(1, now.sequence + 1))
    assert len({event.event_id for event in log}) == len(log)
    bodies = [json.loads(event.body) for event in log]
    for event, body in zip(log, bodies, strict=True):
        shared = {"event": event.name, "event_id": event.event_id, "sequence": event.sequence}
        assert shared.items() <= body.items()
        assert body["job_id"] == now.job_id
        assert (body["status"], body["document_id"]) == (event.status, "notes")
        assert body["stage"] in DOCUMENT.all_stages
    names = [event.name.removeprefix("document.") for event in log]
    once = [name for name in names if name not in REPEATABLE]
    assert len(set(once)) == len(once), "steps, start and end are logged once"
    endings = {"indexed": "completed", "failed": "failed", "canceled": "canceled"}
    ends = [endings[name] for name in names if name in endings]
    assert ends == ([now.status] if now.is_final else [])
    assert not ends or names[-1] in endings, "nothing is logged after the end"
    assert names[0] == "uploaded"
    middle = ["progress"] * (len(log) - 2) + ["ended" if now.is_final else "progress"]
    assert [event.lifecycle for event in log] == ["submitted", *middle][: len(log)]
    assert [event.final_status for event in log if event.final_status] == ends
    assert ("started" in names) == (now.started_at is not None)
    assert set(now.steps) == set(names) & {"uploaded", "chunked", "embedded"}


def check_progress(before: Job, now: Job) -> None:
    """Versions grow, leases do not change, and a job that has ended does not change."""
    assert now.version >= before.version
    assert not before.is_final or now == before
    assert before.lease in (None, now.lease)
    assert now.is_final == (now.finished_at is not None)
    assert (now.status == "queued") <= (now.lease is None)
    assert (now.error is not None) == (now.status == "failed")
    assert (now.result is not None) == (now.status == "completed")


cloud_client = functools.cache(clients.dynamodb)


class WritersOverMoto(Writers):
    """Fewer runs over moto, which evaluates expressions as DynamoDB does."""

    def __init__(self) -> None:
        super().__init__()
        self.cloud = mock_aws()
        self.cloud.start()

    def new_table(self) -> Any:
        client = cloud_client()
        conftest.create_table(client, TABLE, indexes=("gsi1", "gsi2"))
        return client

    def teardown(self) -> None:
        self.cloud.stop()


TestWriters = Writers.TestCase
TestWriters.settings = settings(max_examples=70, stateful_step_count=35, deadline=None)

TestWritersOverMoto = WritersOverMoto.TestCase
TestWritersOverMoto.settings = settings(max_examples=3, stateful_step_count=12, deadline=None)


# ── concurrent changes ───────────────────────────────────────────────────────────────────────────────────────


def test_concurrent_change(bench: Bench) -> None:
    """If another writer was faster, the change is decided again with the job's new state."""
    job_id = bench.submitted().job_id
    seen: list[int] = []

    def change(subject: Job, now: str) -> Transition:
        seen.append(subject.version)
        if len(seen) <= 3:
            bench.other_store.apply(job_id, report_progress(len(seen), 3))
        return Transition(subject, "progressed", {"done": 99, "total": 99})

    done = bench.store.apply(job_id, change)
    assert seen == [1, 2, 3, 4]
    assert (done.version, done.sequence) == (5, 5)
    assert [json.loads(event.body).get("done") for event in bench.store.log.read(job_id)] == [None, 1, 2, 3, 99]


def test_cancel_during_completion(bench: Bench) -> None:
    """A job that is canceled before the write of its completion stays canceled."""
    job_id = bench.submitted().job_id
    bench.store.apply(job_id, begin(DOCUMENT, stage="validate", lease=A))
    bench.client.plan.append(before_write(lambda: bench.other_store.apply(job_id, cancel)))
    with pytest.raises(JobClosed, match="the job is canceled"):
        bench.store.apply(job_id, complete(DOCUMENT, lease=A, result={}))
    assert bench.log(job_id) == ["uploaded", "started", "canceled"]


def test_completion_during_failure(bench: Bench) -> None:
    """A job that completes before the write of its failure stays completed."""
    job_id = bench.submitted().job_id
    bench.store.apply(job_id, begin(DOCUMENT, stage="validate", lease=A))
    bench.client.plan.append(
        before_write(lambda: bench.other_store.apply(job_id, complete(DOCUMENT, lease=A, result={})))
    )
    assert bench.store.apply(job_id, fail(code="late", message="")).status == "completed"
    assert bench.log(job_id) == ["uploaded", "started", "indexed"]


def test_concurrent_start(bench: Bench) -> None:
    """Of two executions that begin a queued job, one holds it, and the other gets JobClosed."""
    job_id = bench.submitted().job_id
    bench.client.plan.append(
        before_write(lambda: bench.other_store.apply(job_id, begin(DOCUMENT, stage="validate", lease=B)))
    )
    with pytest.raises(JobClosed, match="another execution holds the job"):
        bench.store.apply(job_id, begin(DOCUMENT, stage="validate", lease=A))
    assert bench.store.get(job_id).lease == B
    assert bench.log(job_id) == ["uploaded", "started"]


@pytest.mark.parametrize("fault", [fault_injection.conflict, fault_injection.check_failed])
def test_contention(bench: Bench, fault: Fault) -> None:
    """A write is attempted MAX_CONTENTIONS times before Contended is raised."""
    job_id = bench.submitted().job_id
    bench.client.plan.extend([fault] * (MAX_CONTENTIONS - 1))
    assert bench.store.apply(job_id, cancel).status == "canceled"
    job_id = bench.submitted().job_id
    bench.client.plan.extend([fault] * MAX_CONTENTIONS)
    with pytest.raises(Contended):
        bench.store.apply(job_id, cancel)
    assert bench.log(job_id) == ["uploaded"]


def test_pauses_between_attempts() -> None:
    """There is a random pause before each further attempt."""
    pauses: list[float] = []
    table = FaultyClient(MemoryTable())
    store = JobStore(table, TABLE, clock=FakeClock(), sleep=pauses.append)
    job_id = store.submit(DOCUMENT, job()).job.job_id
    assert pauses == []
    table.plan.extend([fault_injection.conflict, fault_injection.conflict])
    store.apply(job_id, cancel)
    assert len(pauses) == 2
    assert all(0 < pause < 0.1 for pause in pauses)


def test_other_errors_are_not_retried(bench: Bench) -> None:
    """Other errors of DynamoDB are raised at once."""
    job_id = bench.submitted().job_id

    def refuse(write: fault_injection.Write) -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "TransactWriteItems")

    bench.client.plan.append(refuse)
    with pytest.raises(ClientError, match="AccessDenied"):
        bench.store.apply(job_id, cancel)
    assert len(bench.client.requests) == 2


# ── transactions ────────────────────────────────────────────────────────────────────────────────────────────


def test_expiry_of_items(bench: Bench) -> None:
    """The job's item, its events and its progress expire together."""
    subject = bench.submitted()
    bench.store.apply(subject.job_id, begin(DOCUMENT, stage="validate", lease=A))
    report_progress_now(bench, subject)
    items = [item for (pk, _), item in bench.table.items.items() if pk == f"JOB#{subject.job_id}"]
    assert {item["sk"] for item in items} >= {"META", "PROGRESS", "EVENT#000001", "EVENT#000002", "EVENT#000003"}
    assert {item["expires_at"] for item in items} == {subject.expires_at}


def test_failed_condition_of_extra_write(cloud_bench: Bench) -> None:
    """If the condition of an additional write fails, nothing is written."""
    bench, catalog = cloud_bench, Catalog(cloud_bench.table, TABLE)
    job_id = bench.submitted().job_id
    bench.store.apply(job_id, begin(DOCUMENT, stage="validate", lease=A))
    newer, older = document(version="2"), document(version="1")
    bench.table.put_item(**catalog.publish("ana", newer)["Put"])
    before = bench.store.get(job_id)
    with pytest.raises(ConditionFailed):
        bench.store.apply(job_id, complete(DOCUMENT, lease=A, result={}), writes=[catalog.publish("ana", older)])
    assert bench.store.get(job_id) == before
    assert bench.log(job_id) == ["uploaded", "started"]
    done = bench.store.apply(
        job_id, complete(DOCUMENT, lease=A, result={}), writes=[catalog.publish("ana", document(version="3"))]
    )
    assert done.status == "completed"
    assert (
        bench.store.apply(job_id, complete(DOCUMENT, lease=A, result={}), writes=[catalog.publish("ana", older)])
        == done
    )


def test_failed_condition_and_concurrent_change(bench: Bench) -> None:
    """A changed job is read again before an additional write is found to have failed."""
    catalog = Catalog(bench.table, TABLE)
    job_id = bench.submitted().job_id
    bench.store.apply(job_id, begin(DOCUMENT, stage="validate", lease=A))
    publish = catalog.publish("ana", document(version="1"))
    bench.table.put_item(**publish["Put"])
    bench.client.plan.append(before_write(lambda: bench.other_store.apply(job_id, cancel)))
    with pytest.raises(JobClosed, match="canceled"):
        bench.store.apply(job_id, complete(DOCUMENT, lease=A, result={}), writes=[publish])


@pytest.mark.parametrize("code", ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"])
def test_conflict_of_extra_write(bench: Bench, code: str) -> None:
    """A conflict at an additional write is retried."""
    job_id = bench.submitted().job_id
    bench.store.apply(job_id, begin(DOCUMENT, stage="validate", lease=A))

    def fault(write: fault_injection.Write) -> None:
        raise canceled("None", "None", code)

    bench.client.plan.append(fault)
    publish = Catalog(bench.table, TABLE).publish("ana", document())
    assert (
        bench.store.apply(job_id, complete(DOCUMENT, lease=A, result={}), writes=[publish]).status == "completed"
    )


# ── submission ───────────────────────────────────────────────────────────────────────────────────────────────


# ── open jobs ────────────────────────────────────────────────────────────────────────────────────────────────


def test_places(bench: Bench) -> None:
    """An owner has so many places on state machines. A job keeps its place, and gives it back when it ends."""
    first, second, third = (bench.submitted() for _ in range(3))
    of_ben = bench.submitted(owner="ben")
    assert [bench.store.admit(each, limit=2) for each in (first, second, third, of_ben, first)] == [
        *(True, True, False, True, True),
    ]
    bench.store.apply(first.job_id, cancel)
    assert bench.store.admit(third, limit=2)
    assert bench.store.open_jobs.running("ana") == sorted([second.job_id, third.job_id])


@pytest.mark.parametrize("change", [cancel, begin(DOCUMENT, stage="validate", lease=A)], ids=["ended", "started"])
def test_no_place_for_a_job_that_is_not_queued(bench: Bench, change: Change) -> None:
    """A job that has started or ended gets no place, so that none is taken for ever."""
    subject = bench.submitted()
    bench.store.apply(subject.job_id, change)
    with pytest.raises(JobClosed):
        bench.store.admit(subject, limit=2)
    assert bench.store.open_jobs.running("ana") == []


def test_counting_stops_at_the_limit(cloud_bench: Bench) -> None:
    """Open jobs are counted up to the limit, and the owner's only."""
    for owner in ("ana", "ana", "ana", "ben"):
        cloud_bench.submitted(owner=owner)
    counted = [cloud_bench.store.open_jobs.count("ana", limit=limit) for limit in (1, 2, 3, 4, 100)]
    assert counted == [1, 2, 3, 3, 3]


def test_expired_items_do_not_count(cloud_bench: Bench) -> None:
    """An hour after a job's deadline its items count no more, if something left them behind."""
    subject = cloud_bench.submitted()
    cloud_bench.store.admit(subject, limit=9)
    cloud_bench.clock.now = NOW + 5 * 3600 - 1
    jobs = cloud_bench.store.open_jobs
    assert (jobs.count("ana", limit=9), jobs.running("ana")) == (1, [subject.job_id])
    cloud_bench.clock.now += 1
    assert (jobs.count("ana", limit=9), jobs.running("ana")) == (0, [])


def test_exclusive_kind(cloud_bench: Bench) -> None:
    """While a job of an exclusive kind is open, another about the same subject is refused with its id."""
    store, first = cloud_bench.store, replay()
    store.submit(REPLAY, first)
    with pytest.raises(Conflict, match=first.job_id) as caught:
        store.submit(REPLAY, replay())
    assert caught.value.job_id == first.job_id
    assert store.submit(REPLAY, replay(owner="ben")).job.exclusive == first.input["webhook_id"]
    store.submit(REPLAY, replay(input=dict(first.input) | {"webhook_id": "wh_other"}))
    store.apply(first.job_id, cancel)
    store.submit(REPLAY, replay())


def test_lost_response_of_an_exclusive_job(bench: Bench) -> None:
    """A submission whose response was lost does not conflict with itself."""
    bench.client.plan.append(fault_injection.in_progress)
    draft = replay()
    assert bench.store.submit(REPLAY, draft).job.job_id == draft.job_id


def test_leftover_of_an_exclusive_job(cloud_bench: Bench) -> None:
    """What a job left behind that ended without its items does not block the next job."""
    first = cloud_bench.store.submit(REPLAY, replay()).job
    leave_behind(cloud_bench, first, cloud_bench.store.open_jobs.put_exclusive(first)[0])
    second = cloud_bench.store.submit(REPLAY, replay()).job
    with pytest.raises(Conflict, match=second.job_id):
        cloud_bench.store.submit(REPLAY, replay())


def test_overdue_exclusive_job(cloud_bench: Bench) -> None:
    """A job that nothing ends blocks until an hour after its deadline."""
    cloud_bench.store.submit(REPLAY, replay())
    cloud_bench.clock.now = NOW + 5 * 3600 - 1
    with pytest.raises(Conflict):
        cloud_bench.store.submit(REPLAY, replay())
    cloud_bench.clock.now += 1
    cloud_bench.store.submit(REPLAY, replay(at=cloud_bench.clock.now))


def test_leftover_places(cloud_bench: Bench) -> None:
    """Places of jobs that ended without their items, or are gone, are given to others."""
    ended, waiting = cloud_bench.submitted(), cloud_bench.submitted()
    for left in (ended, job()):
        leave_behind(cloud_bench, left, cloud_bench.store.open_jobs.put_running(left))
    assert cloud_bench.store.admit(waiting, limit=1)
    assert cloud_bench.store.open_jobs.running("ana") == [waiting.job_id]


def leave_behind(bench: Bench, subject: Job, operation: dict[str, Any]) -> None:
    """End the job as a version does that does not know this item."""
    with contextlib.suppress(NotFound):
        bench.store.apply(subject.job_id, cancel)
    bench.table.put_item(TableName=TABLE, Item=operation["Put"]["Item"])


def test_first_event(cloud_bench: Bench) -> None:
    """A submitted job is queued, and its first event has the fields of its kind."""
    draft = job(metadata={"tag": "👩‍🚀"}, webhook_url="https://example.com/x", webhook_events=("document.failed",))
    submitted = cloud_bench.store.submit(DOCUMENT, draft)
    assert not submitted.replayed
    assert cloud_bench.store.get(draft.job_id) == submitted.job
    (event,) = cloud_bench.store.log.read(draft.job_id)
    assert json.loads(event.body) == {
        "bytes": 12,
        "event": "document.uploaded",
        "event_id": event.event_id,
        "job_id": draft.job_id,
        "sequence": 1,
        "timestamp": draft.created_at,
        "status": "queued",
        "stage": "queued",
        "document_id": "notes",
    }
    assert (event.status, event.lifecycle) == ("queued", "submitted")
    assert event.body.isascii()


def test_subject(bench: Bench) -> None:
    """The subject is stored at submission, from the field that the kind names."""
    draft = job(input={"document_id": "a/b", "bytes": 1}, subject={"document_id": "other", "more": "x"})
    submitted = bench.store.submit(DOCUMENT, draft).job
    assert submitted.subject == bench.store.get(draft.job_id).subject == {"document_id": "a/b"}


def test_envelope_takes_precedence(bench: Bench) -> None:
    """Fields of a kind do not replace those of the envelope."""
    job_id = bench.submitted().job_id
    bench.store.apply(job_id, begin(DOCUMENT, stage="validate", lease=A))
    bench.store.apply(job_id, complete(DOCUMENT, lease=A, result={"sequence": 99, "event": "x", "job_id": "y"}))
    last = json.loads(bench.store.log.read(job_id)[-1].body)
    assert (last["sequence"], last["event"], last["job_id"]) == (3, "document.indexed", job_id)


def test_same_key_and_body(cloud_bench: Bench) -> None:
    """The same key with the same body returns the first job, and writes nothing."""
    store = cloud_bench.store
    first = store.submit(DOCUMENT, job(), idempotency=key(body={"a": 1, "b": [2]})).job
    store.apply(first.job_id, cancel)
    again = store.submit(DOCUMENT, job(), idempotency=key(body={"b": [2.0], "a": 1.0}))
    assert again.replayed
    assert again.job == store.get(first.job_id)
    assert again.job.status == "canceled"
    assert len(store.listing.page("ana")[0]) == 1


def test_same_key_and_other_body(bench: Bench) -> None:
    """The same key with another body raises InvalidRequest."""
    bench.store.submit(DOCUMENT, job(), idempotency=key(body={"a": 1}))
    with pytest.raises(InvalidRequest, match="used for another request") as caught:
        bench.store.submit(DOCUMENT, job(), idempotency=key(body={"a": True}))
    assert caught.value.field == "Idempotency-Key"


def test_keys_belong_to_owners(bench: Bench) -> None:
    """Two owners can use the same key."""
    bench.store.submit(DOCUMENT, job(), idempotency=key(body=1))
    assert not bench.store.submit(DOCUMENT, job(owner="ben"), idempotency=key(body=2)).replayed


def test_concurrent_submissions(bench: Bench) -> None:
    """Of two concurrent submissions with a key, the second returns the job of the first."""
    winner = job()
    other_store = before_write(lambda: bench.other_store.submit(DOCUMENT, winner, idempotency=key()))
    bench.client.plan.append(other_store)
    lost = bench.store.submit(DOCUMENT, job(), idempotency=key())
    assert lost.replayed
    assert lost.job.job_id == winner.job_id
    assert len(bench.store.listing.page("ana")[0]) == 1


def test_submission_in_progress(bench: Bench) -> None:
    """While the other transaction is in progress, the submission is attempted again."""
    winner = job()

    def win(write: fault_injection.Write) -> Any:
        bench.other_store.submit(DOCUMENT, winner, idempotency=key())
        return write()

    bench.client.plan.extend([fault_injection.conflict, fault_injection.conflict, win])
    lost = bench.store.submit(DOCUMENT, job(), idempotency=key())
    assert (lost.replayed, lost.job.job_id) == (True, winner.job_id)


def test_lasting_conflict(bench: Bench) -> None:
    """Contended is raised after MAX_CONTENTIONS attempts, and nothing is written."""
    bench.client.plan.extend([fault_injection.conflict] * MAX_CONTENTIONS)
    with pytest.raises(Contended):
        bench.store.submit(DOCUMENT, job(), idempotency=key())
    assert bench.table.items == {}


def test_crash_after_the_write(bench: Bench) -> None:
    """A caller whose response was lost gets its job by sending the request again with the key."""
    lost = job()
    bench.client.plan.append(fault_injection.crash_after)
    with pytest.raises(Crash):
        bench.store.submit(DOCUMENT, lost, idempotency=key())
    again = bench.store.submit(DOCUMENT, job(), idempotency=key())
    assert (again.replayed, again.job.job_id) == (True, lost.job_id)


@pytest.mark.parametrize("idempotency", [None, key()])
def test_lost_response(bench: Bench, idempotency: Idempotency | None) -> None:
    """If an earlier attempt has written the job, it is returned as a new one."""
    draft = job()
    bench.client.plan.append(fault_injection.in_progress)
    done = bench.store.submit(DOCUMENT, draft, idempotency=idempotency)
    assert (done.replayed, done.job.job_id) == (False, draft.job_id)
    assert bench.log(draft.job_id) == ["uploaded"]


def test_expired_key(cloud_bench: Bench) -> None:
    """A key can be used again when it has expired, even if DynamoDB has not deleted it yet."""
    store, clock = cloud_bench.store, cloud_bench.clock
    first = store.submit(DOCUMENT, job(), idempotency=key(body=1, seconds=60)).job
    clock.now += 59
    assert store.submit(DOCUMENT, job(), idempotency=key(body=1, seconds=60)).replayed
    clock.now += 1
    second = store.submit(DOCUMENT, job(), idempotency=key(body=2, seconds=60))
    assert not second.replayed
    assert second.job.job_id != first.job_id
    assert store.submit(DOCUMENT, job(), idempotency=key(body=2, seconds=60)).job.job_id == second.job.job_id


@pytest.mark.parametrize("replays", [False, True])
def test_failed_condition_of_extra_write_in_submission(bench: Bench, *, replays: bool) -> None:
    """A failed condition of an additional write is distinguished from a used key."""
    taken = {"pk": "OWNER#ana", "sk": "ENDPOINT#default", "expires_at": int(NOW) + DAY}
    bench.table.put_item(Item=taken)
    also = [{"Put": {"TableName": TABLE, "Item": taken, "ConditionExpression": "attribute_not_exists(pk)"}}]
    if replays:
        bench.other_store.submit(DOCUMENT, job(), idempotency=key())
        assert bench.store.submit(DOCUMENT, job(), idempotency=key(), writes=also).replayed
    else:
        with pytest.raises(ConditionFailed):
            bench.store.submit(DOCUMENT, job(), idempotency=key(), writes=also)
        assert len(bench.table.items) == 1


@given(st.lists(st.none() | faults.filter(lambda fault: fault is not fault_injection.check_failed), max_size=6))
def test_one_key_one_job(faults: list[Fault | None]) -> None:
    """Whatever faults occur in repeated submissions, a key creates at most one job with one first event."""
    bench = Bench()
    for fault in faults:
        bench.client.plan.clear()
        if fault:
            bench.client.plan.append(fault)
        try:
            bench.store.submit(DOCUMENT, job(), idempotency=key())
        except Crash:
            continue
    bench.client.plan.clear()
    done = bench.store.submit(DOCUMENT, job(), idempotency=key()).job
    found, _ = bench.store.listing.page("ana")
    assert found == [done]
    assert bench.log(done.job_id) == ["uploaded"]


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_round_trip(cloud_bench: Bench) -> None:
    """All fields are read as they were written: floats, empty texts, order and None."""
    written = job(
        input={"document_id": "", "bytes": 3, "threshold": 0.1, "z": 1, "a": [1.0, None]},
        metadata={"": "x", "año": "👩‍🚀"},
        webhook_url="https://example.com/?a=b",
        webhook_events=("document.failed", "document.indexed"),
        retry_of="job_1",
    )
    job_id = cloud_bench.store.submit(DOCUMENT, written).job.job_id
    cloud_bench.store.apply(job_id, begin(DOCUMENT, stage="validate", lease=A))
    done = cloud_bench.store.apply(job_id, complete(DOCUMENT, lease=A, result={"score": 0.25, "n": 1}))
    read = cloud_bench.store.get(job_id)
    assert read == done
    assert list(read.input) == list(written.input)
    assert type(read.attempts) is type(read.version) is type(read.expires_at) is int


def test_expired_job(bench: Bench) -> None:
    """An expired job is not found in any way, even if DynamoDB has not deleted it yet."""
    subject = bench.submitted(expires_at=int(NOW) + 60)
    report_progress_now(bench, subject)
    bench.clock.now = NOW + 59.9
    assert bench.store.get(subject.job_id).job_id == subject.job_id
    assert len(bench.store.log.read(subject.job_id)) == 2
    bench.clock.now = NOW + 60
    with pytest.raises(NotFound):
        bench.store.get(subject.job_id)
    with pytest.raises(NotFound):
        bench.store.snapshot(subject.job_id, owner="ana")
    with pytest.raises(NotFound):
        bench.store.apply(subject.job_id, cancel)
    assert bench.store.log.read(subject.job_id) == []
    assert bench.store.listing.page("ana") == ([], None)


@pytest.mark.parametrize("read", [JobStore.get, JobStore.snapshot])
def test_job_of_other_owner(bench: Bench, read: Callable[..., Any]) -> None:
    """The errors for another owner's job and for a missing job are equal."""
    subject = bench.submitted(owner="ana")
    answers = []
    for job_id in (subject.job_id, ids.new("job")):
        with pytest.raises(NotFound) as caught:
            read(bench.store, job_id, owner="ben")
        answers.append(str(caught.value))
    assert answers[0] == answers[1]
    assert read(bench.store, subject.job_id, owner="ana")


def test_reads_are_strongly_consistent(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """All reads of the table, except of indexes, are strongly consistent."""
    subject = bench.submitted()
    requests: list[dict[str, Any]] = []

    def recording(name: str) -> Callable[..., Any]:
        real = getattr(bench.table, name)

        def call(**request: Any) -> Any:
            requests.append(request)
            return real(**request)

        return call

    for name in ("get_item", "paginate"):
        monkeypatch.setattr(bench.table, name, recording(name))
    bench.store.get(subject.job_id)
    bench.store.snapshot(subject.job_id, owner="ana")
    bench.store.log.read(subject.job_id)
    assert [request["ConsistentRead"] for request in requests] == [True] * 3


def test_snapshot(cloud_bench: Bench) -> None:
    """A snapshot contains the job, its progress and its webhook's state."""
    store = cloud_bench.store
    subject = cloud_bench.submitted()
    assert store.snapshot(subject.job_id, owner="ana").progress is None
    store.progress.mark_batch(subject, 0, total=3)
    facts = {"status": "pending", "attempts": 1}
    store.record_webhook(subject.job_id, facts, at=subject.created_at, expires_at=subject.expires_at)
    snapshot = store.snapshot(subject.job_id, owner="ana")
    assert snapshot.job == store.get(subject.job_id)
    assert snapshot.progress == (1, 3)
    assert snapshot.webhook is not None
    assert (snapshot.webhook["status"], snapshot.webhook["attempts"]) == ("pending", 1)


def test_record_webhook(cloud_bench: Bench) -> None:
    """The state of the latest attempt is kept. One of an earlier attempt is not written."""
    store, subject = cloud_bench.store, cloud_bench.submitted()
    for moment, attempts in ((2, 2), (1, 1), (3, 3), (3, 4)):
        at = events.timestamp(NOW + moment)
        store.record_webhook(subject.job_id, {"attempts": attempts}, at=at, expires_at=subject.expires_at)
    webhook = store.snapshot(subject.job_id, owner="ana").webhook
    assert webhook is not None
    assert webhook["attempts"] == 4
