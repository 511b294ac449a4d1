from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from moto import mock_aws
from ulid import ULID

from core import events, ids
from core.aws import clients
from core.errors import ConditionFailed, Conflict, Contended, InvalidRequest, JobClosed, NotFound
from core.jobs import FINAL, Idempotency, Job, JobStore, begin, cancel, complete, fail, fingerprint, step
from core.jobs.kind import REPEATABLE
from core.jobs.machine import Change, Transition, report_progress
from core.jobs.store import MAX_CONTENTIONS, PROGRESS_EVENT_SECONDS
from kinds.document.index.catalog import Catalog
from kinds.document.kind import DOCUMENT
from kinds.replay.kind import REPLAY
from tests.simulated_cloud.calls import Calls
from tests.simulated_cloud.clock import Clock
from tests.unit import conftest
from tests.unit.core.jobs import meddler
from tests.unit.core.jobs.meddler import Crash, Meddler, Meddling, meanwhile
from tests.unit.core.jobs.memory_table import MemoryTable, canceled
from tests.unit.examples import DAY, NOW, FakeClock, document, job, replay

TABLE = "jobs"
A, B = "execution-a", "execution-b"


class Bench:
    """A store over a table in memory, and what a test plays on: the table, the meddler and the clock."""

    def __init__(self, table: Any = None) -> None:
        self.table = table or MemoryTable()
        self.meddler = Meddler(self.table)
        self.clock = FakeClock()
        self.store = JobStore(self.meddler, TABLE, clock=self.clock, sleep=lambda seconds: None)
        self.rival = JobStore(self.table, TABLE, clock=self.clock, sleep=lambda seconds: None)

    def submitted(self, **facts: Any) -> Job:
        return self.store.submit(DOCUMENT, job(**facts)).job

    def item(self, pk: str, sk: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.table.get_item(TableName=TABLE, Key={"pk": pk, "sk": sk}).get("Item")
        return found

    def log(self, job_id: str) -> list[str]:
        return [event.name.removeprefix("document.") for event in self.store.events(job_id)]


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def cloud_bench(dynamodb: Any, jobs_table: str) -> Bench:
    """The same over moto."""
    return Bench(dynamodb)


def key(name: str = "key", body: Any = None, seconds: int = DAY) -> Idempotency:
    return Idempotency(name, fingerprint(body), seconds)


# ── any number of writers, in any order, with faults ─────────────────────────────────────────────────────────

leases = st.sampled_from([A, B])
stages = st.sampled_from(DOCUMENT.order[1:])
changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(begin, st.just(DOCUMENT), stage=stages, lease=leases),
    st.builds(step, verb=st.sampled_from(["chunked", "embedded"]), lease=leases, next_stage=stages, n=st.just(1)),
    st.builds(complete, st.just(DOCUMENT), lease=leases, result=st.just({"chunks": 1})),
    st.builds(fail, code=st.just("internal"), message=st.text(max_size=3), stage=st.none() | stages),
    st.just(cancel),
    st.builds(report_progress, st.integers(0, 3), st.just(3)),
)
faults = st.sampled_from(
    [meddler.conflict, meddler.check_failed, meddler.in_progress, meddler.crash_before, meddler.crash_after]
)
EXPECTED = (JobClosed, Conflict, Contended, ConditionFailed, Crash)


class Writers(RuleBasedStateMachine):
    """Executions that hold a job or only think so, its owner and the sweep, all writing to one job."""

    planned = Bundle("planned")

    @initialize()
    def submit(self) -> None:
        self.bench = Bench(self.new_table())
        self.job_id = self.bench.submitted().job_id
        self.shown = self.look()

    def new_table(self) -> Any:
        return MemoryTable()

    @rule(target=planned, change=changes)
    def plan(self, change: Change) -> Change:
        """Messages come twice and late: what is planned once may be carried out any number of times."""
        return change

    @rule(change=planned)
    def carry_out(self, change: Change) -> None:
        self.attempt(change)

    @rule(lease=leases, stage=stages)
    def work(self, lease: str, stage: str) -> None:
        """Plain progress, so that runs get beyond the first refusals."""
        self.attempt(begin(DOCUMENT, stage=stage, lease=lease))

    @rule(change=planned, troubles=st.lists(faults, min_size=1, max_size=MAX_CONTENTIONS + 1))
    def carry_out_in_trouble(self, change: Change, troubles: list[Meddling]) -> None:
        self.attempt(change, *troubles)

    @rule(change=planned, rivals=st.lists(planned, min_size=1, max_size=3))
    def race(self, change: Change, rivals: list[Change]) -> None:
        """Between reading and writing, others are faster, more than once."""
        self.attempt(change, *(meanwhile(functools.partial(self.attempt_of_a_rival, other)) for other in rivals))

    @rule(
        batch=st.integers(0, 2),
        seconds=st.integers(0, 2 * PROGRESS_EVENT_SECONDS),
        troubles=st.lists(faults, max_size=2),
    )
    def count_a_batch(self, batch: int, seconds: int, troubles: list[Meddling]) -> None:
        self.bench.clock.now += seconds
        self.bench.meddler.plan.extend(troubles)
        with contextlib.suppress(*EXPECTED):
            self.bench.store.mark_batch(self.bench.store.get(self.job_id), batch, total=3)
        self.bench.meddler.plan.clear()

    def attempt(self, change: Change, *meddlings: Meddling) -> None:
        self.bench.clock.now += 0.25
        self.bench.meddler.plan.extend(meddlings)
        try:
            returned = self.bench.store.apply(self.job_id, change)
        except EXPECTED:
            pass
        else:
            assert returned == self.bench.store.get(self.job_id)
        self.bench.meddler.plan.clear()

    def attempt_of_a_rival(self, change: Change) -> None:
        with contextlib.suppress(*EXPECTED):
            self.bench.rival.apply(self.job_id, change)

    def look(self) -> tuple[Job, list[events.Event]]:
        return self.bench.store.get(self.job_id), self.bench.store.events(self.job_id)

    @invariant()
    def the_log_and_the_row_agree(self) -> None:
        (before, earlier), (now, log) = self.shown, self.look()
        check_log(now, log)
        check_progress(before, now)
        assert log[: len(earlier)] == earlier, "what is logged is never changed"
        assert (now == before) == (now.version == before.version), "nothing changes without a new version"
        assert now.version - before.version >= len(log) - len(earlier), "no two events share a version"
        self.shown = (now, log)

    @invariant()
    def the_index_of_open_jobs_has_the_open_alone(self) -> None:
        row = self.bench.item(f"JOB#{self.job_id}", "META") or {}
        assert ("gsi2pk" in row) == ("gsi2sk" in row) == (row["status"] not in FINAL)


def check_log(now: Job, log: list[events.Event]) -> None:
    """The log is numbered without a gap, says nothing twice, and ends as the job does."""
    assert [event.sequence for event in log] == list(range(1, now.sequence + 1))
    assert len({event.event_id for event in log}) == len(log)
    bodies = [json.loads(event.body) for event in log]
    for event, body in zip(log, bodies, strict=True):
        shown = {"event": event.name, "event_id": event.event_id, "sequence": event.sequence}
        assert shown.items() <= body.items()
        assert body["job_id"] == now.job_id
        assert (body["status"], body["document_id"]) == (event.status, "notes")
        assert body["stage"] in DOCUMENT.order
    names = [event.name.removeprefix("document.") for event in log]
    once = [name for name in names if name not in REPEATABLE]
    assert len(set(once)) == len(once), "a step, a start and an end are logged once"
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
    """Versions grow, stages and leases are not taken back, and an end is an end."""
    assert now.version >= before.version
    assert not before.is_final or now == before
    assert before.lease in (None, now.lease)
    assert now.is_final == (now.finished_at is not None)
    assert (now.status == "queued") <= (now.lease is None)
    assert (now.error is not None) == (now.status == "failed")
    assert (now.result is not None) == (now.status == "completed")


cloud_client = functools.cache(clients.dynamodb)


class WritersInTheCloud(Writers):
    """A few of the same runs over moto, which reads the expressions as DynamoDB does."""

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
TestWritersInTheCloud = WritersInTheCloud.TestCase
TestWritersInTheCloud.settings = settings(max_examples=3, stateful_step_count=12, deadline=None)


# ── races, one by one ────────────────────────────────────────────────────────────────────────────────────────


def test_a_change_is_decided_again(bench: Bench) -> None:
    """A change during which another writer was faster is decided anew, by what that writer left."""
    job_id = bench.submitted().job_id
    seen: list[int] = []

    def change(subject: Job, now: str) -> Transition:
        seen.append(subject.version)
        if len(seen) <= 3:
            bench.rival.apply(job_id, report_progress(len(seen), 3))
        return Transition(subject, "progressed", {"done": 99, "total": 99})

    done = bench.store.apply(job_id, change)
    assert seen == [1, 2, 3, 4]
    assert (done.version, done.sequence) == (5, 5)
    assert [json.loads(event.body).get("done") for event in bench.store.events(job_id)] == [None, 1, 2, 3, 99]


def test_cancel_beats_complete(bench: Bench) -> None:
    """A cancel that comes between the reading and the writing of a completion wins, and nothing is undone."""
    job_id = bench.submitted().job_id
    bench.store.apply(job_id, begin(DOCUMENT, stage="validate", lease=A))
    bench.meddler.plan.append(meanwhile(lambda: bench.rival.apply(job_id, cancel)))
    with pytest.raises(JobClosed, match="the job is canceled"):
        bench.store.apply(job_id, complete(DOCUMENT, lease=A, result={}))
    assert bench.log(job_id) == ["uploaded", "started", "canceled"]


def test_complete_beats_a_late_failure(bench: Bench) -> None:
    """A failure that was decided before the job completed leaves it completed."""
    job_id = bench.submitted().job_id
    bench.store.apply(job_id, begin(DOCUMENT, stage="validate", lease=A))
    bench.meddler.plan.append(meanwhile(lambda: bench.rival.apply(job_id, complete(DOCUMENT, lease=A, result={}))))
    assert bench.store.apply(job_id, fail(code="late", message="")).status == "completed"
    assert bench.log(job_id) == ["uploaded", "started", "indexed"]


def test_two_executions_start_at_once(bench: Bench) -> None:
    """Of two executions that both saw a queued job, one holds it and the other is told to stop."""
    job_id = bench.submitted().job_id
    bench.meddler.plan.append(
        meanwhile(lambda: bench.rival.apply(job_id, begin(DOCUMENT, stage="validate", lease=B)))
    )
    with pytest.raises(JobClosed, match="another execution holds the job"):
        bench.store.apply(job_id, begin(DOCUMENT, stage="validate", lease=A))
    assert bench.store.get(job_id).lease == B
    assert bench.log(job_id) == ["uploaded", "started"]


@pytest.mark.parametrize("fault", [meddler.conflict, meddler.check_failed])
def test_contention_is_outlasted(bench: Bench, fault: Meddling) -> None:
    """All but the last try may fail; one more failure, and the caller is told to come back."""
    job_id = bench.submitted().job_id
    bench.meddler.plan.extend([fault] * (MAX_CONTENTIONS - 1))
    assert bench.store.apply(job_id, cancel).status == "canceled"
    job_id = bench.submitted().job_id
    bench.meddler.plan.extend([fault] * MAX_CONTENTIONS)
    with pytest.raises(Contended):
        bench.store.apply(job_id, cancel)
    assert bench.log(job_id) == ["uploaded"]


def test_pauses_between_tries() -> None:
    """Writers that meet pause before they try again, and never after success."""
    pauses: list[float] = []
    table = Meddler(MemoryTable())
    store = JobStore(table, TABLE, clock=FakeClock(), sleep=pauses.append)
    job_id = store.submit(DOCUMENT, job()).job.job_id
    assert pauses == []
    table.plan.extend([meddler.conflict, meddler.conflict])
    store.apply(job_id, cancel)
    assert len(pauses) == 2
    assert all(0 < pause < 0.1 for pause in pauses)


def test_other_errors_are_not_retried(bench: Bench) -> None:
    """A refusal of another kind reaches the caller at once."""
    job_id = bench.submitted().job_id

    def refuse(write: meddler.Write) -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "TransactWriteItems")

    bench.meddler.plan.append(refuse)
    with pytest.raises(ClientError, match="AccessDenied"):
        bench.store.apply(job_id, cancel)
    assert len(bench.meddler.requests) == 2


# ── what is written together ─────────────────────────────────────────────────────────────────────────────────


def test_a_change_is_one_transaction(bench: Bench) -> None:
    """The row, conditioned on the version and status that were read, goes with its event, which must be new."""
    job_id = bench.submitted().job_id
    bench.store.apply(job_id, begin(DOCUMENT, stage="validate", lease=A))
    row, event = (operation["Put"] for operation in bench.meddler.requests[-1])
    assert row["ConditionExpression"] == "#version = :version AND #status = :status"
    assert row["ExpressionAttributeNames"] == {"#version": "version", "#status": "status"}
    assert row["ExpressionAttributeValues"] == {":version": 1, ":status": "queued"}
    assert (row["Item"]["sk"], row["Item"]["version"], row["Item"]["sequence"]) == ("META", 2, 2)
    assert event["ConditionExpression"] == "attribute_not_exists(pk)"
    assert (event["Item"]["sk"], event["Item"]["entity"]) == ("EVENT#000002", "event")
    assert row["Item"]["pk"] == event["Item"]["pk"] == f"JOB#{job_id}"


def test_a_change_without_event(bench: Bench) -> None:
    """A change that is not announced writes the row alone; one that decides nothing writes nothing."""
    job_id = bench.submitted().job_id
    bench.store.apply(job_id, begin(DOCUMENT, stage="validate", lease=A))
    bench.store.apply(job_id, begin(DOCUMENT, stage="chunk", lease=A))
    assert len(bench.meddler.requests[-1]) == 1
    bench.store.apply(job_id, cancel)
    written = len(bench.meddler.requests)
    assert bench.store.apply(job_id, cancel).status == "canceled"
    assert len(bench.meddler.requests) == written


def test_all_items_of_a_job_share_an_expiry(bench: Bench) -> None:
    """Row, events and progress expire together."""
    subject = bench.submitted()
    bench.store.apply(subject.job_id, begin(DOCUMENT, stage="validate", lease=A))
    report_progress_now(bench, subject)
    items = [item for (pk, _), item in bench.table.items.items() if pk == f"JOB#{subject.job_id}"]
    assert {item["sk"] for item in items} >= {"META", "PROGRESS", "EVENT#000001", "EVENT#000002", "EVENT#000003"}
    assert {item["expires_at"] for item in items} == {subject.expires_at}


def test_completing_with_the_pointer(cloud_bench: Bench) -> None:
    """Where a write that goes with a change finds its condition broken, nothing at all is written."""
    bench, catalog = cloud_bench, Catalog(cloud_bench.table, TABLE)
    job_id = bench.submitted().job_id
    bench.store.apply(job_id, begin(DOCUMENT, stage="validate", lease=A))
    newer, older = document(version="2"), document(version="1")
    bench.table.put_item(**catalog.publish("ana", newer)["Put"])
    before = bench.store.get(job_id)
    with pytest.raises(ConditionFailed):
        bench.store.apply(job_id, complete(DOCUMENT, lease=A, result={}), also=[catalog.publish("ana", older)])
    assert bench.store.get(job_id) == before
    assert bench.log(job_id) == ["uploaded", "started"]
    done = bench.store.apply(
        job_id, complete(DOCUMENT, lease=A, result={}), also=[catalog.publish("ana", document(version="3"))]
    )
    assert done.status == "completed"
    assert (
        bench.store.apply(job_id, complete(DOCUMENT, lease=A, result={}), also=[catalog.publish("ana", older)])
        == done
    )


def test_the_pointer_and_a_rival(bench: Bench) -> None:
    """A row that changed is read again before anyone blames the write that goes with it."""
    catalog = Catalog(bench.table, TABLE)
    job_id = bench.submitted().job_id
    bench.store.apply(job_id, begin(DOCUMENT, stage="validate", lease=A))
    publish = catalog.publish("ana", document(version="1"))
    bench.table.put_item(**publish["Put"])
    bench.meddler.plan.append(meanwhile(lambda: bench.rival.apply(job_id, cancel)))
    with pytest.raises(JobClosed, match="canceled"):
        bench.store.apply(job_id, complete(DOCUMENT, lease=A, result={}), also=[publish])


@pytest.mark.parametrize("code", ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"])
def test_a_conflict_at_the_pointer(bench: Bench, code: str) -> None:
    """A passing trouble at a write that goes along is no broken condition: the change is tried again."""
    job_id = bench.submitted().job_id
    bench.store.apply(job_id, begin(DOCUMENT, stage="validate", lease=A))

    def trouble(write: meddler.Write) -> None:
        raise canceled("None", "None", code)

    bench.meddler.plan.append(trouble)
    publish = Catalog(bench.table, TABLE).publish("ana", document())
    assert bench.store.apply(job_id, complete(DOCUMENT, lease=A, result={}), also=[publish]).status == "completed"


# ── submission ───────────────────────────────────────────────────────────────────────────────────────────────


def test_submission_is_one_transaction(bench: Bench) -> None:
    """Job, first event, what goes along and idempotency key are one transaction, each on its condition."""
    draft = job()
    also = {"Put": {"TableName": TABLE, "Item": {"pk": "OWNER#ana", "sk": "ENDPOINT#default"}}}
    bench.store.submit(DOCUMENT, draft, idempotency=key("k", {"a": 1}, seconds=60), also=[also])
    (request,) = bench.meddler.requests
    row, event, other, idempotency = (operation["Put"] for operation in request)
    assert [put["TableName"] for put in (row, event, idempotency)] == [TABLE] * 3
    assert other is also["Put"]
    assert (row["Item"]["pk"], row["Item"]["sk"]) == (f"JOB#{draft.job_id}", "META")
    assert row["ConditionExpression"] == "attribute_not_exists(pk)"
    assert (event["Item"]["pk"], event["Item"]["sk"]) == (f"JOB#{draft.job_id}", "EVENT#000001")
    assert event["ConditionExpression"] == "attribute_not_exists(pk)"
    digest = hashlib.sha256(b"k").hexdigest()
    assert idempotency["Item"] == {
        "pk": f"IDEM#ana#{digest}",
        "sk": "IDEM",
        "entity": "idempotency",
        "job_id": draft.job_id,
        "fingerprint": fingerprint({"a": 1}),
        "expires_at": int(NOW) + 60,
    }
    assert idempotency["ConditionExpression"] == "attribute_not_exists(pk) OR expires_at <= :now"
    assert idempotency["ExpressionAttributeValues"] == {":now": int(NOW)}


def test_first_event(cloud_bench: Bench) -> None:
    """A submitted job is queued, and its log says `uploaded` with the document's name and size."""
    draft = job(metadata={"tag": "👩‍🚀"}, webhook_url="https://example.com/x", webhook_events=("document.failed",))
    submitted = cloud_bench.store.submit(DOCUMENT, draft)
    assert not submitted.replayed
    assert cloud_bench.store.get(draft.job_id) == submitted.job
    (event,) = cloud_bench.store.events(draft.job_id)
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


def test_the_subject_follows_from_the_input(bench: Bench) -> None:
    """What a job is about is written at its submission, from the field that its kind names."""
    draft = job(input={"document_id": "a/b", "bytes": 1}, subject={"document_id": "other", "more": "x"})
    submitted = bench.store.submit(DOCUMENT, draft).job
    assert submitted.subject == bench.store.get(draft.job_id).subject == {"document_id": "a/b"}


def test_a_replay_round_trip(cloud_bench: Bench) -> None:
    """A replay is stored as any job: each of its events names the endpoint, and the first all that was asked."""
    store, draft = cloud_bench.store, replay()
    job_id = store.submit(REPLAY, draft).job.job_id
    assert store.get(job_id).input == draft.input
    store.apply(job_id, begin(REPLAY, stage="send", lease=A))
    done = store.apply(job_id, complete(REPLAY, lease=A, result={"sent": 2}))
    assert store.get(job_id) == done
    assert [subject.kind for subject in store.page("ana")[0]] == ["replay"]
    log = store.events(job_id)
    assert [event.name for event in log] == ["replay.requested", "replay.started", "replay.completed"]
    assert {event.kind for event in log} == {"replay"}
    first, *_, last = bodies = [json.loads(event.body) for event in log]
    assert draft.input.items() <= first.items()
    assert last["sent"] == 2
    assert {body["webhook_id"] for body in bodies} == {draft.input["webhook_id"]}
    assert not any("document_id" in body for body in bodies)


def test_the_envelope_wins(bench: Bench) -> None:
    """A kind's own fields cannot replace what the envelope says."""
    job_id = bench.submitted().job_id
    bench.store.apply(job_id, begin(DOCUMENT, stage="validate", lease=A))
    bench.store.apply(job_id, complete(DOCUMENT, lease=A, result={"sequence": 99, "event": "x", "job_id": "y"}))
    last = json.loads(bench.store.events(job_id)[-1].body)
    assert (last["sequence"], last["event"], last["job_id"]) == (3, "document.indexed", job_id)


def test_without_a_key_each_is_a_job(bench: Bench) -> None:
    """Without an idempotency key, the same body twice makes two jobs."""
    bench.store.submit(DOCUMENT, job())
    bench.store.submit(DOCUMENT, job())
    assert len(bench.store.page("ana")[0]) == 2


def test_replay(cloud_bench: Bench) -> None:
    """The same key with the same body answers the first job as it is now, and writes nothing."""
    store = cloud_bench.store
    first = store.submit(DOCUMENT, job(), idempotency=key(body={"a": 1, "b": [2]})).job
    store.apply(first.job_id, cancel)
    again = store.submit(DOCUMENT, job(), idempotency=key(body={"b": [2.0], "a": 1.0}))
    assert again.replayed
    assert again.job == store.get(first.job_id)
    assert again.job.status == "canceled"
    assert len(store.page("ana")[0]) == 1


def test_other_body(bench: Bench) -> None:
    """The same key with another body is the caller's mistake, and the field is named."""
    bench.store.submit(DOCUMENT, job(), idempotency=key(body={"a": 1}))
    with pytest.raises(InvalidRequest, match="used for another request") as caught:
        bench.store.submit(DOCUMENT, job(), idempotency=key(body={"a": True}))
    assert caught.value.field == "Idempotency-Key"


def test_keys_belong_to_owners(bench: Bench) -> None:
    """Two owners may use the same key for different things."""
    bench.store.submit(DOCUMENT, job(), idempotency=key(body=1))
    assert not bench.store.submit(DOCUMENT, job(owner="ben"), idempotency=key(body=2)).replayed


def test_the_loser_replays(bench: Bench) -> None:
    """Two at once with one key: the one whose transaction fails reads again and answers the other's job."""
    winner = job()
    rival = meanwhile(lambda: bench.rival.submit(DOCUMENT, winner, idempotency=key()))
    bench.meddler.plan.append(rival)
    lost = bench.store.submit(DOCUMENT, job(), idempotency=key())
    assert lost.replayed
    assert lost.job.job_id == winner.job_id
    assert len(bench.store.page("ana")[0]) == 1


def test_the_loser_waits_for_a_winner_that_is_not_done(bench: Bench) -> None:
    """Where the other's transaction is still under way, the loser tries until it can tell."""
    winner = job()

    def win(write: meddler.Write) -> Any:
        bench.rival.submit(DOCUMENT, winner, idempotency=key())
        return write()

    bench.meddler.plan.extend([meddler.conflict, meddler.conflict, win])
    lost = bench.store.submit(DOCUMENT, job(), idempotency=key())
    assert (lost.replayed, lost.job.job_id) == (True, winner.job_id)


def test_a_loser_that_cannot_tell(bench: Bench) -> None:
    """Conflicts without an end are reported as such, and leave nothing behind."""
    bench.meddler.plan.extend([meddler.conflict] * MAX_CONTENTIONS)
    with pytest.raises(Contended):
        bench.store.submit(DOCUMENT, job(), idempotency=key())
    assert bench.table.items == {}


def test_crash_after_the_write(bench: Bench) -> None:
    """A caller that never got its answer gets the job it made by asking again with its key."""
    lost = job()
    bench.meddler.plan.append(meddler.crash_after)
    with pytest.raises(Crash):
        bench.store.submit(DOCUMENT, lost, idempotency=key())
    again = bench.store.submit(DOCUMENT, job(), idempotency=key())
    assert (again.replayed, again.job.job_id) == (True, lost.job_id)


@pytest.mark.parametrize("idempotency", [None, key()])
def test_a_write_that_succeeded_unnoticed(bench: Bench, idempotency: Idempotency | None) -> None:
    """A job that turns out to be written already is the caller's own and new, not a replay and not an error."""
    draft = job()
    bench.meddler.plan.append(meddler.in_progress)
    done = bench.store.submit(DOCUMENT, draft, idempotency=idempotency)
    assert (done.replayed, done.job.job_id) == (False, draft.job_id)
    assert bench.log(draft.job_id) == ["uploaded"]


def test_expired_key(cloud_bench: Bench) -> None:
    """A key can be used anew from the second it expires, though the table still has it."""
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
def test_what_goes_along_is_out_of_date(bench: Bench, *, replays: bool) -> None:
    """A broken condition of a write that goes along is told apart from a key that was used before."""
    taken = {"pk": "OWNER#ana", "sk": "ENDPOINT#default", "expires_at": int(NOW) + DAY}
    bench.table.put_item(Item=taken)
    also = [{"Put": {"TableName": TABLE, "Item": taken, "ConditionExpression": "attribute_not_exists(pk)"}}]
    if replays:
        bench.rival.submit(DOCUMENT, job(), idempotency=key())
        assert bench.store.submit(DOCUMENT, job(), idempotency=key(), also=also).replayed
    else:
        with pytest.raises(ConditionFailed):
            bench.store.submit(DOCUMENT, job(), idempotency=key(), also=also)
        assert len(bench.table.items) == 1


@given(
    st.lists(
        st.sampled_from([meddler.conflict, meddler.crash_before, meddler.crash_after, meddler.in_progress, None]),
        max_size=6,
    )
)
def test_one_key_one_job(troubles: list[Meddling | None]) -> None:
    """However a caller's tries end, in whatever order, its key makes one job at most, with one first event."""
    bench = Bench()
    for trouble in troubles:
        bench.meddler.plan.clear()
        if trouble:
            bench.meddler.plan.append(trouble)
        try:
            bench.store.submit(DOCUMENT, job(), idempotency=key())
        except Crash:
            continue
    bench.meddler.plan.clear()
    done = bench.store.submit(DOCUMENT, job(), idempotency=key()).job
    found, _ = bench.store.page("ana")
    assert found == [done]
    assert bench.log(done.job_id) == ["uploaded"]


# ── fingerprints ─────────────────────────────────────────────────────────────────────────────────────────────

numbers = st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def same(a: Any, b: Any) -> bool:
    """Whether two JSON values are equal: Python's equality, but that true is not 1."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return isinstance(a, bool) == isinstance(b, bool) and type(a is None) is type(b is None) and bool(a == b)


def rewritten(value: Any) -> Any:
    """The same value, written differently: keys turned round, whole numbers the other way."""
    if isinstance(value, dict):
        return {name: rewritten(value[name]) for name in reversed(value)}
    if isinstance(value, list):
        return [rewritten(part) for part in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
        return float(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


@given(json_values)
def test_rewritten_json_has_the_same_fingerprint(value: Any) -> None:
    """Neither the order of keys, nor 1 instead of 1.0, nor white space makes another fingerprint."""
    other = rewritten(value)
    assert fingerprint(other) == fingerprint(value)
    assert fingerprint(json.loads(json.dumps(other, indent=3))) == fingerprint(value)


@given(json_values, json_values)
def test_fingerprints_tell_values_apart(a: Any, b: Any) -> None:
    """Two values have one fingerprint exactly if they are equal."""
    assert (fingerprint(a) == fingerprint(b)) == same(a, b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, True),
        (0, False),
        (0, None),
        ("1", 1),
        ([], {}),
        ({"a": None}, {}),
        ([1, 2], [2, 1]),
        ("é", "e\u0301"),
        (2**53, 2**53 + 1),
        (0.1, 0.1000000001),
        ("\ud800", "\udc00"),
        (float("inf"), 10**308),
    ],
)
def test_near_misses(a: Any, b: Any) -> None:
    """Values that look alike, or are equal in Python alone, have different fingerprints."""
    assert fingerprint(a) != fingerprint(b)


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_round_trip(cloud_bench: Bench) -> None:
    """Every field comes back from the table as it was written: floats, empty texts, order and None."""
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


def test_expiry_is_checked_on_reading(bench: Bench) -> None:
    """From the second a job expires it is not found by any way, though the table still has it."""
    subject = bench.submitted(expires_at=int(NOW) + 60)
    report_progress_now(bench, subject)
    bench.clock.now = NOW + 59.9
    assert bench.store.get(subject.job_id).job_id == subject.job_id
    assert len(bench.store.events(subject.job_id)) == 2
    bench.clock.now = NOW + 60
    with pytest.raises(NotFound):
        bench.store.get(subject.job_id)
    with pytest.raises(NotFound):
        bench.store.snapshot(subject.job_id, owner="ana")
    with pytest.raises(NotFound):
        bench.store.apply(subject.job_id, cancel)
    assert bench.store.events(subject.job_id) == []
    assert bench.store.page("ana") == ([], None)


@pytest.mark.parametrize("read", [JobStore.get, JobStore.snapshot])
def test_somebody_elses_job(bench: Bench, read: Callable[..., Any]) -> None:
    """Another owner's job and one that never was give the same answer, word for word."""
    subject = bench.submitted(owner="ana")
    answers = []
    for job_id in (subject.job_id, ids.new("job")):
        with pytest.raises(NotFound) as caught:
            read(bench.store, job_id, owner="ben")
        answers.append(str(caught.value))
    assert answers[0] == answers[1]
    assert read(bench.store, subject.job_id, owner="ana")


def test_reads_are_strongly_consistent(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was just written is read: every read of the table itself asks for it."""
    subject = bench.submitted()
    asked: list[dict[str, Any]] = []

    def recording(name: str) -> Callable[..., Any]:
        real = getattr(bench.table, name)

        def call(**request: Any) -> Any:
            asked.append(request)
            return real(**request)

        return call

    for name in ("get_item", "paginate"):
        monkeypatch.setattr(bench.table, name, recording(name))
    bench.store.get(subject.job_id)
    bench.store.snapshot(subject.job_id, owner="ana")
    bench.store.events(subject.job_id)
    assert [request["ConsistentRead"] for request in asked] == [True] * 3


def test_snapshot(cloud_bench: Bench) -> None:
    """A snapshot is the job, its progress and its webhook's state, read by one query that sees no event."""
    store = cloud_bench.store
    subject = cloud_bench.submitted()
    assert store.snapshot(subject.job_id, owner="ana").progress is None
    store.mark_batch(subject, 0, total=3)
    facts = {"status": "pending", "attempts": 1}
    store.record_webhook(subject.job_id, facts, at=subject.created_at, expires_at=subject.expires_at)
    snapshot = store.snapshot(subject.job_id, owner="ana")
    assert snapshot.job == store.get(subject.job_id)
    assert snapshot.progress == (1, 3)
    assert snapshot.webhook is not None
    assert (snapshot.webhook["status"], snapshot.webhook["attempts"]) == ("pending", 1)


def test_what_there_is_to_do(cloud_bench: Bench) -> None:
    """How much there is to do is known before any is done, and the only batch reports nothing, however slow."""
    store = cloud_bench.store
    subject = cloud_bench.submitted()
    store.expect_batches(subject, 1)
    assert store.snapshot(subject.job_id, owner="ana").progress == (0, 1)
    cloud_bench.clock.now += 10 * PROGRESS_EVENT_SECONDS
    store.mark_batch(subject, 0, total=1)
    store.expect_batches(subject, 1)
    assert store.snapshot(subject.job_id, owner="ana").progress == (1, 1)
    assert [event.name for event in store.events(subject.job_id)] == ["document.uploaded"]


def test_the_latest_word_of_a_webhook(cloud_bench: Bench) -> None:
    """What an attempt came to is shown until a later one is known; what is told late changes nothing."""
    store, subject = cloud_bench.store, cloud_bench.submitted()
    for moment, attempts in ((2, 2), (1, 1), (3, 3), (3, 4)):
        at = events.timestamp(NOW + moment)
        store.record_webhook(subject.job_id, {"attempts": attempts}, at=at, expires_at=subject.expires_at)
    webhook = store.snapshot(subject.job_id, owner="ana").webhook
    assert webhook is not None
    assert webhook["attempts"] == 4


def test_events_after(cloud_bench: Bench) -> None:
    """The log comes in order from any number on, also past 9 and 99, and at most as much as asked for."""
    store, subject = cloud_bench.store, cloud_bench.submitted()
    for number in range(12):
        store.apply(subject.job_id, report_progress(number, 12))
    report_progress_now(cloud_bench, subject)
    sequences = [event.sequence for event in store.events(subject.job_id)]
    assert sequences == list(range(1, 15))
    assert [event.sequence for event in store.events(subject.job_id, after=9)] == [10, 11, 12, 13, 14]
    assert [event.sequence for event in store.events(subject.job_id, after=2, limit=3)] == [3, 4, 5]
    assert store.events(subject.job_id, after=14) == []
    assert store.events(subject.job_id, after=10**9) == []


def test_pages(cloud_bench: Bench) -> None:
    """An owner's jobs come newest first, page by page, each once, and nobody else's among them."""
    store = cloud_bench.store
    made = [cloud_bench.submitted(job_id=f"job_{number:026d}").job_id for number in range(7)]
    cloud_bench.submitted(owner="ben", job_id=f"job_{3:025d}Z")
    found: list[str] = []
    cursor: str | None = None
    for expected in (3, 3, 1):
        page, cursor = store.page("ana", cursor=cursor, limit=3)
        assert len(page) == expected
        found += [subject.job_id for subject in page]
    assert cursor is None
    assert found == made[::-1]


def test_pages_of_wanted_jobs(bench: Bench) -> None:
    """A page holds as many wanted jobs as it may, however many unwanted ones lie between."""
    made = [bench.submitted(job_id=f"job_{number:026d}").job_id for number in range(9)]
    for job_id in made[::3]:
        bench.store.apply(job_id, cancel)

    def canceled_only(subject: Job) -> bool:
        return subject.status == "canceled"

    page, cursor = bench.store.page("ana", limit=2, wanted=canceled_only)
    assert [subject.job_id for subject in page] == [made[6], made[3]]
    rest, end = bench.store.page("ana", cursor=cursor, limit=2, wanted=canceled_only)
    assert ([subject.job_id for subject in rest], end) == ([made[0]], None)


def test_a_page_of_rare_jobs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page looks at so many jobs and no more: it may be short, or empty, but its cursor leads on to the end."""
    monkeypatch.setattr("core.jobs.store.MAX_EXAMINED", 3)
    made = [bench.submitted(job_id=f"job_{number:026d}").job_id for number in range(10)]
    bench.store.apply(made[0], cancel)
    found: list[str] = []
    cursor: str | None = None
    pages = 0
    while pages == 0 or cursor:
        page, cursor = bench.store.page("ana", cursor=cursor, limit=5, wanted=lambda subject: subject.is_final)
        found += [subject.job_id for subject in page]
        pages += 1
    assert found == [made[0]]
    assert pages == 4


def test_overdue(cloud_bench: Bench) -> None:
    """Open jobs are overdue from their deadline on, whatever shard they are in; final ones never."""
    late = {cloud_bench.submitted(deadline=events.timestamp(NOW + 10)).job_id for _ in range(12)}
    cloud_bench.submitted(deadline=events.timestamp(NOW + 11))
    ended = cloud_bench.submitted(deadline=events.timestamp(NOW + 10)).job_id
    cloud_bench.store.apply(ended, cancel)
    cloud_bench.clock.now = NOW + 9
    assert list(cloud_bench.store.overdue()) == []
    cloud_bench.clock.now = NOW + 10.5
    assert set(cloud_bench.store.overdue()) == late


def report_progress_now(bench: Bench, subject: Job) -> None:
    """Two batches, far enough apart for the second to be told."""
    bench.store.mark_batch(subject, 0, total=2)
    bench.clock.now += PROGRESS_EVENT_SECONDS
    bench.store.mark_batch(subject, 1, total=2)


# ── how long jobs took ───────────────────────────────────────────────────────────────────────────────────────


def completed(seconds: float, **facts: Any) -> Job:
    """A job that took so long, from its submission to its end."""
    return job(status="completed", finished_at=events.timestamp(NOW + seconds), **facts)


def test_history(bench: Bench) -> None:
    """Lengths are remembered by owner and kind, to the millisecond, the latest last, thirty at most."""
    for seconds in range(40):
        bench.store.record_duration(completed(seconds + 0.567))
    bench.store.record_duration(completed(9, owner="ben"))
    bench.store.record_duration(completed(8, kind="replay", input=replay().input))
    assert bench.store.history("ana", "document").seconds == tuple(n + 0.567 for n in range(10, 40))
    assert bench.store.history("ben", "document").seconds == (9,)
    assert bench.store.history("ana", "replay").seconds == (8,)
    assert bench.store.history("ben", "replay").seconds == ()


@pytest.mark.parametrize("facts", [{"status": status} for status in ("failed", "canceled", "running", "queued")])
def test_no_lesson(bench: Bench, facts: dict[str, str]) -> None:
    """A job that did not complete does not say how long one takes."""
    bench.store.record_duration(job(finished_at=events.timestamp(NOW + 5), **facts))
    bench.store.record_duration(job(status="completed"))
    assert bench.store.history("ana", "document").seconds == ()


def test_a_history_is_forgotten_with_its_last_job(bench: Bench) -> None:
    """The row expires with the job that it learned from last, and is none of what lists or indexes show."""
    bench.store.record_duration(completed(5, expires_at=123))
    item = bench.item("OWNER#ana", "PACE#document")
    assert item is not None
    assert (item["expires_at"], item["entity"]) == (123, "pace")
    assert set(item) == {"pk", "sk", "entity", "seconds", "expires_at"}
    assert bench.store.page("ana") == ([], None)


# ── progress ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_counts_once(bench: Bench) -> None:
    """A batch whose message comes twice is counted once."""
    subject = bench.submitted()
    for batch in (2, 0, 2, 2, 0):
        bench.store.mark_batch(subject, batch, total=3)
    assert bench.store.snapshot(subject.job_id, owner="ana").progress == (2, 3)


def test_progress_is_told_now_and_then(bench: Bench) -> None:
    """However fast batches are done, their event comes at most every five seconds, with what is true then."""
    subject = bench.submitted()
    for batch in range(100):
        bench.clock.now += 0.25
        bench.store.mark_batch(subject, batch, total=100)
    reports = [json.loads(event.body) for event in bench.store.events(subject.job_id)][1:]
    times = [datetime.fromisoformat(report["timestamp"]).timestamp() for report in reports]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert 4 <= len(reports) <= 6
    assert min(gaps) > PROGRESS_EVENT_SECONDS - 1
    assert [report["done"] for report in reports] == sorted({report["done"] for report in reports})
    assert all(report["total"] == 100 for report in reports)


def test_one_writer_reports(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two workers that find a report due at the same time, one writes it."""
    subject = bench.submitted()
    bench.store.mark_batch(subject, 0, total=3)
    bench.clock.now += PROGRESS_EVENT_SECONDS
    real = bench.table.update_item

    def update_item(**request: Any) -> Any:
        monkeypatch.setattr(bench.table, "update_item", real)
        answer = real(**request)
        bench.rival.mark_batch(subject, 2, total=3)
        return answer

    monkeypatch.setattr(bench.table, "update_item", update_item)
    bench.store.mark_batch(subject, 1, total=3)
    assert bench.log(subject.job_id) == ["uploaded", "progressed"]
    assert bench.store.snapshot(subject.job_id, owner="ana").progress == (3, 3)


def save(bench: Bench, subject: Job, done: int, cursor: str | None, was: str | None) -> bool:
    return bench.store.save_progress(subject, done=done, total=9, cursor=cursor, was=was)


def test_progress_in_order(cloud_bench: Bench) -> None:
    """What is worked through in order is told as numbers, and where to go on as the cursor, until the end."""
    bench, subject = cloud_bench, cloud_bench.store.submit(REPLAY, replay()).job
    assert bench.store.load_progress(subject.job_id) is None
    assert save(bench, subject, 4, cursor="c1", was=None)
    assert bench.store.load_progress(subject.job_id) == (4, 9, "c1")
    assert bench.store.snapshot(subject.job_id, owner="ana").progress == (4, 9)
    assert save(bench, subject, 9, cursor=None, was="c1")
    assert bench.store.load_progress(subject.job_id) == (9, 9, None)
    assert bench.store.snapshot(subject.job_id, owner="ana").progress == (9, 9)
    item = bench.item(f"JOB#{subject.job_id}", "PROGRESS")
    assert item is not None
    assert item["expires_at"] == subject.expires_at


@pytest.mark.parametrize("end", [None, "c2"], ids=["at the end", "on the way"])
def test_a_worker_that_was_overtaken(cloud_bench: Bench, end: str | None) -> None:
    """Whoever read a cursor that another has moved writes nothing, wherever it read, and is told so."""
    bench, subject = cloud_bench, cloud_bench.store.submit(REPLAY, replay()).job
    assert save(bench, subject, 4, cursor="c1", was=None)
    assert save(bench, subject, 6, cursor=end, was="c1")
    for was in (None, "c1", "c0", ""):
        assert not save(bench, subject, 1, cursor="c3", was=was)
    assert bench.store.load_progress(subject.job_id) == (6, 9, end)


def test_one_page_is_the_end(cloud_bench: Bench) -> None:
    """A list of a single page ends as it begins, and who comes late with the same page is told so."""
    bench, subject = cloud_bench, cloud_bench.store.submit(REPLAY, replay()).job
    assert save(bench, subject, 9, cursor=None, was=None)
    assert not save(bench, subject, 5, cursor="c1", was=None)
    assert bench.store.load_progress(subject.job_id) == (9, 9, None)


@given(pages=st.integers(1, 5), moves=st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=40))
def test_workers_at_one_list(pages: int, moves: list[tuple[int, bool]]) -> None:
    """However workers that read and write are mixed, each page is noted once and in order."""
    bench = Bench()
    subject = bench.store.submit(REPLAY, replay()).job
    cursors = [None, *(str(page) for page in range(1, pages)), None]
    read: list[tuple[int, int, str | None] | None] = [None] * 3
    noted: list[int] = []
    for worker, reads in moves:
        if reads:
            read[worker] = bench.store.load_progress(subject.job_id)
            continue
        done, _, was = read[worker] or (0, pages, None)
        if done == pages:
            continue
        if bench.store.save_progress(subject, done=done + 1, total=pages, cursor=cursors[done + 1], was=was):
            noted.append(done + 1)
        assert bench.store.snapshot(subject.job_id, owner="ana").progress == (noted[-1], pages)
    assert noted == list(range(1, len(noted) + 1))


def test_progress_in_order_is_told_now_and_then(bench: Bench) -> None:
    """However often the cursor moves, the log says so at most every five seconds, and not after the end."""
    subject = bench.store.submit(REPLAY, replay()).job
    was = None
    for done in range(100):
        bench.clock.now += 0.25
        assert save(bench, subject, done, cursor=f"c{done}", was=was)
        was = f"c{done}"
    log = bench.store.events(subject.job_id)
    assert [event.name for event in log] == ["replay.requested"] + ["replay.progressed"] * (len(log) - 1)
    assert 4 <= len(log) - 1 <= 6
    assert json.loads(log[-1].body)["total"] == 9
    bench.store.apply(subject.job_id, cancel)
    bench.clock.now += PROGRESS_EVENT_SECONDS
    assert save(bench, subject, 100, cursor=None, was=was)
    assert bench.store.events(subject.job_id)[-1].name == "replay.canceled"


# ── the log, backwards and whole; jobs, oldest first ─────────────────────────────────────────────────────────


def logged(bench: Bench, count: int) -> Job:
    """A job whose log has so many events."""
    subject = bench.submitted()
    for done in range(count - 1):
        bench.store.apply(subject.job_id, report_progress(done, count))
    return subject


@pytest.mark.parametrize("page", [1, 2, 5, 1000])
def test_the_whole_log(cloud_bench: Bench, page: int) -> None:
    """The whole log is read in order, however many pages it takes, and another job's is not in it."""
    subject = logged(cloud_bench, 5)
    logged(cloud_bench, 2)
    found = list(cloud_bench.store.log(subject.job_id, page=page))
    assert [event.sequence for event in found] == [1, 2, 3, 4, 5]
    assert found == cloud_bench.store.events(subject.job_id)
    assert list(cloud_bench.store.log("job_none", page=page)) == []


def test_a_log_that_has_expired(cloud_bench: Bench) -> None:
    """Of a job that is forgotten there is no log."""
    subject = logged(cloud_bench, 3)
    cloud_bench.clock.now = subject.expires_at
    assert list(cloud_bench.store.log(subject.job_id, page=1)) == []


@pytest.mark.parametrize("sequence", [1, 2, 3, 25, 45, 99])
def test_events_before(cloud_bench: Bench, sequence: int) -> None:
    """What happened before an event, the latest first, over more than one page, without META and the like."""
    subject = logged(cloud_bench, 45)
    found = [event.sequence for event in cloud_bench.store.events_before(subject.job_id, sequence)]
    assert found == list(range(min(sequence - 1, 45), 0, -1))


def test_events_before_are_read_as_needed(cloud_bench: Bench) -> None:
    """Whoever needs one event reads one page."""
    subject = logged(cloud_bench, 45)
    calls = Calls(Clock())
    with calls.intercepted():
        assert next(cloud_bench.store.events_before(subject.job_id, 45)).sequence == 44
    assert [call.operation for call in calls.log] == ["Query"]
    assert calls.log[0].params["ConsistentRead"]


def at(bench: Bench, *moments: float, **facts: Any) -> list[Job]:
    """Jobs that were submitted so many seconds after NOW."""
    made = []
    for moment in moments:
        job_id = "job_" + str(ULID.from_timestamp(int((NOW + moment) * 1000)))
        made.append(bench.submitted(job_id=job_id, **facts))
    return made


def test_oldest_first(cloud_bench: Bench) -> None:
    """An owner's jobs between two moments, from the first on: the lower one counts, the upper one does not."""
    jobs = at(cloud_bench, 0, 1, 2, 3, 4)
    at(cloud_bench, 2, owner="ben")
    span = {"after": ids.floor("job", NOW + 1), "before": ids.floor("job", NOW + 4)}
    found = list(cloud_bench.store.oldest_first("ana", **span))
    assert [each.job_id for each in found] == [each.job_id for each in jobs[1:4]]
    assert cloud_bench.store.count("ana", **span) == 3


def test_oldest_first_goes_on(cloud_bench: Bench) -> None:
    """From one of them on come those after it, each once, over more than one page."""
    jobs = [each.job_id for each in at(cloud_bench, *range(120))]
    before = ids.floor("job", NOW + 500)
    found = [each.job_id for each in cloud_bench.store.oldest_first("ana", after=jobs[9], before=before)]
    assert found == jobs[10:]
    assert list(cloud_bench.store.oldest_first("ana", after=jobs[-1], before=before)) == []


def test_oldest_first_without_the_expired(cloud_bench: Bench) -> None:
    """Those that are forgotten are left out, though the index has them yet."""
    at(cloud_bench, 0, expires_at=int(NOW) + 5)
    (kept,) = at(cloud_bench, 1)
    cloud_bench.clock.now += 5
    span = {"after": ids.floor("job", NOW - 1), "before": ids.floor("job", NOW + 9)}
    assert [each.job_id for each in cloud_bench.store.oldest_first("ana", **span)] == [kept.job_id]
    assert cloud_bench.store.count("ana", **span) == 2
