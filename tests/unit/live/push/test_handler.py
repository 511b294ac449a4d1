"""Sending events to WebSockets (live.push)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from boto3.dynamodb.types import TypeSerializer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core import events, ids
from core.events import Event
from core.jobs import JobStore
from core.live import messages
from core.live.subscriptions import HANDSHAKE_SECONDS, OFFSET_SECONDS, Connection, Subscriptions
from kinds.document.kind import DOCUMENT
from live.push import handler as live_push
from live.push.handler import handler
from tests.simulated_cloud.calls import Calls
from tests.simulated_cloud.clock import Clock
from tests.unit.conftest import JOBS
from tests.unit.examples import DAY, job
from tests.unit.gateway import GONE, THROTTLED, Gateway, sequences

NOW = time.time()
Record = dict[str, Any]


class Bench:
    """Jobs with logs, their subscribers, and stream records."""

    def __init__(self, dynamodb: Any, gateway: Gateway) -> None:
        self.dynamodb, self.gateway = dynamodb, gateway
        self.jobs = JobStore(dynamodb, JOBS)
        self.subscriptions = Subscriptions(dynamodb, JOBS)
        self._numbers = 1000

    def job(self, **facts: Any) -> str:
        """A job whose log has its first event."""
        return self.jobs.submit(DOCUMENT, job(at=NOW, **facts)).job.job_id

    def log(self, job_id: str, *, note: str = "", **facts: Any) -> Record:
        """Writes another event of a job; returns the stream's record."""
        item = self.dynamodb.get_item(TableName=JOBS, Key={"pk": f"JOB#{job_id}", "sk": "META"})["Item"]
        number = int(item["sequence"]) + 1
        self.dynamodb.put_item(TableName=JOBS, Item=item | {"sequence": number})
        payload = {"event": "document.progressed", "event_id": ids.new("evt"), "job_id": job_id}
        payload |= {"sequence": number, "timestamp": events.timestamp(NOW), "note": note}
        row = {"pk": f"JOB#{job_id}", "sk": f"EVENT#{number:06d}", "entity": "event", "name": payload["event"]}
        row |= {key: payload[key] for key in ("event_id", "job_id", "sequence", "timestamp")}
        row |= {"kind": item["kind"], "owner": item["owner"], "expires_at": int(NOW) + DAY}
        row |= {"status": "running", "lifecycle": "progress"}
        row |= {"body": events.encode(payload), **facts}
        self.dynamodb.put_item(TableName=JOBS, Item=row)
        return self.record(row)

    def requested(self, job_id: str, connection_id: str) -> Record:
        """The record of a subscription."""
        key = {"pk": f"JOB#{job_id}", "sk": f"LIVE#{connection_id}"}
        return self.record(self.dynamodb.get_item(TableName=JOBS, Key=key)["Item"])

    def record(self, row: dict[str, Any]) -> Record:
        self._numbers += 1
        image = {key: TypeSerializer().serialize(value) for key, value in row.items()}
        keys = {key: image[key] for key in ("pk", "sk")}
        change = {"SequenceNumber": str(self._numbers), "Keys": keys, "NewImage": image}
        return {"eventName": "INSERT", "dynamodb": change}

    def connect(self, name: str, *, owner: str = "ana", ago: float = 60) -> Connection:
        """A connection that was opened some seconds ago."""
        return Subscriptions(self.dynamodb, JOBS, clock=lambda: time.time() - ago).connect(name, owner=owner)

    def request(self, name: str, job_id: str, *, after: int = 0, ago: float = 60) -> Record:
        self.subscriptions.subscribe(self.connect(name, ago=ago), job_id, after=after)
        return self.requested(job_id, name)

    def subscribe(self, name: str, job_id: str) -> None:
        """Subscribe, and receive all events so far."""
        assert push(self.request(name, job_id)) == []
        self.gateway.received(name)

    def states(self, job_id: str) -> dict[str, bool]:
        """The subscribers, and whether they are active."""
        return {one.connection_id: one.active for one in self.subscriptions.subscribers(job_id).subscriptions}


@pytest.fixture
def bench(environment: dict[str, str], dynamodb: Any, jobs_table: str, gateway: Gateway) -> Bench:
    return Bench(dynamodb, gateway)


@pytest.fixture
def job_id(bench: Bench) -> str:
    return bench.job()


@pytest.fixture
def calls(bench: Bench) -> Any:
    """Records every call to AWS."""
    calls = Calls(Clock())
    with calls.intercepted():
        yield calls


class Context:
    def __init__(self, *seconds: float) -> None:
        self._seconds = list(seconds)

    def get_remaining_time_in_millis(self) -> int:
        return int(1000 * (self._seconds.pop(0) if len(self._seconds) > 1 else self._seconds[0]))


def push(*records: Record, left: Context | None = None) -> list[str]:
    """The sequence numbers that the function reports as failed. `left`: the remaining milliseconds."""
    answer = handler({"Records": list(records)}, left or Context(60))
    return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


def number(record: Record) -> str:
    found: str = record["dynamodb"]["SequenceNumber"]
    return found


def subscribed(job_id: str, sequence: int) -> dict[str, Any]:
    return {"type": "subscribed", "job_id": job_id, "sequence": sequence}


# ── subscribers ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("after", "missed"), [(0, [1, 2, 3]), (2, [3]), (3, []), (9, []), (999_999, [])])
def test_subscribe(bench: Bench, gateway: Gateway, job_id: str, after: int, missed: list[int]) -> None:
    """A subscriber gets the events after its sequence, then `subscribed`, and then new events."""
    bench.log(job_id)
    bench.log(job_id)
    assert push(bench.request("a=", job_id, after=after)) == []
    *replay, last = gateway.received("a=")
    assert sequences(replay) == missed
    assert last == subscribed(job_id, 3)
    assert bench.states(job_id) == {"a=": True}
    assert push(bench.log(job_id)) == []
    assert sequences(gateway.received("a=")) == [4]


def test_batch_of_events(bench: Bench, gateway: Gateway, job_id: str) -> None:
    """The events of a batch are one message. A subscription among them misses none and gets none twice."""
    bench.subscribe("a=", job_id)
    records = [bench.log(job_id), bench.log(job_id), bench.request("b=", job_id, after=1), bench.log(job_id)]
    assert push(*records) == []
    assert [sequences([message]) for message in gateway.received("a=")] == [[2, 3, 4]]
    replay, last = gateway.received("b=")
    assert (sequences([replay]), last) == ([2, 3, 4], subscribed(job_id, 4))
    assert push(*records) == []
    assert gateway.sent == {}


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from(["log", "ask", "again", "fail", "push"]), st.integers(0, 4)), max_size=25)
)
def test_any_records(bench: Bench, story: list[tuple[str, int]]) -> None:
    """With duplicate, late and batched records and failing sockets, events arrive without gaps and in order."""
    job_id, gateway = bench.job(), bench.gateway
    gateway.sent.clear()
    records: list[Record] = []
    for verb, fact in story:
        name = f"c{fact % 3}="
        if verb == "log":
            records.append(bench.log(job_id))
        elif verb == "ask":
            records.append(bench.request(name, job_id))
        elif verb == "fail":
            gateway.errors[name] = THROTTLED
        elif records:
            push(*records[-1 - fact :] if verb == "again" else records[:1] + records[-1:])
    gateway.errors.clear()
    for _ in range(2):
        push(*records, bench.log(job_id))
    last = bench.jobs.get(job_id).sequence
    for name in bench.states(job_id):
        known = 0
        for sequence in sequences(gateway.received(name)):
            assert sequence <= known + 1
            known = max(known, sequence)
        assert known == last


def test_no_subscribers(bench: Bench, job_id: str, calls: Calls) -> None:
    """Without subscribers neither the log is read nor an offset written."""
    assert push(bench.log(job_id), bench.log(job_id)) == []
    pushed = [call.operation for call in calls.log if call.operation not in ("GetItem", "PutItem")]
    assert pushed == ["Query", "Query"]  # its subscribers and its followers
    assert bench.subscriptions.subscribers(job_id).offset == 0


def test_only_missing_events_are_read(bench: Bench, job_id: str, calls: Calls) -> None:
    """The log is read from the first event that a subscriber lacks."""
    bench.subscribe("a=", job_id)
    record = bench.log(job_id)
    calls.log.clear()
    push(record)
    lows = [
        call.params["ExpressionAttributeValues"].get(":low") for call in calls.log if call.operation == "Query"
    ]
    assert lows == [None, "EVENT#000002", "EVENT#000003", None]


def test_expired_offset(bench: Bench, gateway: Gateway, job_id: str, dynamodb: Any) -> None:
    """After the offset has expired, all events are sent again."""
    bench.subscribe("a=", job_id)
    Subscriptions(dynamodb, JOBS, clock=lambda: NOW - OFFSET_SECONDS - 1).save_offset(job_id, 1, was=1)
    push(bench.log(job_id))
    assert sequences(gateway.received("a=")) == [1, 2]


def test_expired_job(bench: Bench, gateway: Gateway) -> None:
    """The subscriptions to an expired job are deleted."""
    gone = ids.new("job")
    assert push(bench.request("a=", gone)) == []
    assert bench.states(gone) == {}
    assert gateway.sent == {}


def test_many_subscribers(bench: Bench, gateway: Gateway, job_id: str, calls: Calls) -> None:
    """An event goes to hundreds of active subscribers with one read and without a write for each."""
    names = [f"c{place}=" for place in range(200)]
    connection = bench.connect("c=")
    for name in names:
        bench.subscriptions.subscribe(
            Connection(connection_id=name, owner="ana", connected_at=connection.connected_at), job_id
        )
    push(bench.requested(job_id, "c0="))
    assert {len(gateway.received(name)) for name in names} == {2}
    record = bench.log(job_id)
    calls.log.clear()
    push(record)
    assert {tuple(sequences(gateway.received(name))) for name in names} == {(2,)}
    assert len(calls.log) < 10


def test_messages_are_packed_once(
    bench: Bench, gateway: Gateway, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages for the same sequence are made once: copies of a long log would fill the memory."""
    packed: list[int] = []

    def of_events(log: Iterable[Event]) -> list[str]:
        packed.append(1)
        return pack(log)

    pack = messages.of_events
    monkeypatch.setattr(messages, "of_events", of_events)
    records = [bench.request(f"c{place}=", job_id, after=place % 2) for place in range(20)]
    push(*records)
    assert {tuple(sequences(gateway.received(f"c{place}="))) for place in range(20)} == {(1,), ()}
    assert len(packed) == 2


# ── failing sockets ──────────────────────────────────────────────────────────────────────────────────────────


def test_handshake(bench: Bench, gateway: Gateway, job_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that seems to be gone during its handshake is requested again, without a pause."""
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("the only reader of the shard sleeps"))
    monkeypatch.setattr(live_push, "HANDSHAKE_SECONDS", 3600)  # this test may take longer than a handshake
    gateway.errors["a="] = GONE
    assert push(bench.request("a=", job_id, ago=0)) == []
    for _ in range(2 * live_push.MAX_TRIES):
        assert push(bench.requested(job_id, "a=")) == []
    assert bench.states(job_id) == {"a=": False}
    assert bench.subscriptions.connection("a=") is not None
    gateway.errors.clear()
    push(bench.requested(job_id, "a="))
    assert sequences(gateway.received("a=")) == [1]
    assert bench.states(job_id) == {"a=": True}


@pytest.mark.parametrize("joined", [False, True])
def test_gone_connection(bench: Bench, gateway: Gateway, job_id: str, joined: bool) -> None:
    """A connection that is gone is deleted with its subscriptions, and others get their events."""
    other = bench.job()
    connection = bench.connect("a=", ago=HANDSHAKE_SECONDS + 1)
    bench.subscriptions.subscribe(connection, job_id)
    bench.subscriptions.subscribe(connection, other)
    bench.subscriptions.follow(connection, "document")
    if joined:
        push(bench.requested(job_id, "a="))
    bench.subscribe("b=", job_id)
    gateway.sent.clear()
    gateway.errors["a="] = GONE
    assert push(bench.log(job_id)) == []
    assert (bench.states(job_id), bench.states(other)) == ({"b=": True}, {})
    assert bench.subscriptions.connection("a=") is None
    assert bench.subscriptions.followers("ana", "document") == []
    assert sequences(gateway.received("b=")) == [2]


# ── followers ────────────────────────────────────────────────────────────────────────────────────────────────


def test_followers_get_events_only(bench: Bench, gateway: Gateway, job_id: str) -> None:
    """The record of a subscription sends nothing to followers."""
    bench.subscriptions.follow(bench.connect("a="), "document")
    push(bench.request("b=", job_id))
    assert gateway.received("a=") == []


@pytest.mark.parametrize("error", [GONE, THROTTLED])
def test_failed_follower(bench: Bench, gateway: Gateway, job_id: str, error: str) -> None:
    """A follower that failed is disconnected, since it has no offset. Others get the events."""
    for name in ("a=", "b=", "c="):
        bench.subscriptions.follow(bench.connect(name), "document")
    gateway.errors["b="] = error
    assert push(bench.log(job_id)) == []
    assert sequences(gateway.received("a=")) == sequences(gateway.received("c=")) == [2]
    assert bench.subscriptions.followers("ana", "document") == ["a=", "c="]
    assert bench.subscriptions.connection("b=") is None


def test_failed_follower_is_closed(bench: Bench, gateway: Gateway, job_id: str) -> None:
    """The connection of a follower that failed is closed."""
    bench.subscriptions.follow(bench.connect("a="), "document")
    post = gateway.post_to_connection

    def fail_post(**options: Any) -> None:
        gateway.errors["a="] = THROTTLED
        try:
            post(**options)
        finally:
            gateway.errors.clear()

    gateway.post_to_connection = fail_post  # type: ignore[method-assign]
    push(bench.log(job_id))
    assert gateway.closed == ["a="]


# ── failing batches ──────────────────────────────────────────────────────────────────────────────────────────


def test_failed_job(
    bench: Bench, gateway: Gateway, calls: Calls, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    """The first record of the first job that fails is reported. Lambda retries it and all after it."""
    first, second, third = (bench.job() for _ in range(3))
    for name, each in zip(("a=", "b=", "c="), (first, second, third), strict=True):
        bench.subscribe(name, each)
    records = [bench.log(each) for each in (first, second, first, third, second)]
    calls.log.clear()
    # a job's queries are four: its subscribers, its log until there is no more, and its followers
    calls.fail("dynamodb", "Query", "InternalServerError", every=5, times=1)
    assert push(*records) == [number(records[1])]
    assert [line["job_id"] for line in logged()] == [second]
    assert (sequences(gateway.received("a=")), gateway.received("b="), gateway.received("c=")) == ([2, 3], [], [])
    assert push(*records[1:]) == []
    assert (gateway.received("a="), sequences(gateway.received("b=")), sequences(gateway.received("c="))) == (
        [],
        [2, 3],
        [2],
    )


def test_failed_offset(bench: Bench, gateway: Gateway, job_id: str, calls: Calls) -> None:
    """If the offset cannot be written, the events are sent again."""
    bench.subscribe("a=", job_id)
    record = bench.log(job_id)
    calls.fail("dynamodb", "PutItem", "ThrottlingException", times=1)
    assert push(record) == [number(record)]
    assert push(record) == []
    assert sequences(gateway.received("a=")) == [2, 2]


def test_invalid_record(
    bench: Bench, gateway: Gateway, job_id: str, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    """A record that cannot be read does not stop the subscribers of its job and of others."""
    other = bench.job()
    bench.subscribe("a=", job_id)
    bench.subscribe("b=", other)
    record = bench.log(job_id)
    del record["dynamodb"]["NewImage"]["sequence"]
    assert push(record, bench.log(other)) == []
    assert sequences(gateway.received("a=")) == sequences(gateway.received("b=")) == [2]
    assert [line["job_id"] for line in logged()] == [job_id]


def test_no_time_left(bench: Bench, gateway: Gateway, job_id: str) -> None:
    """Jobs for which there is no time left are retried."""
    other = bench.job()
    bench.subscribe("a=", job_id)
    bench.subscribe("b=", other)
    first, second = bench.log(job_id), bench.log(other)
    assert push(first, second, left=Context(15, 14.9)) == [number(second)]
    assert (sequences(gateway.received("a=")), gateway.received("b=")) == ([2], [])


def test_max_subscribers(bench: Bench, gateway: Gateway, job_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests beyond the limit of subscribers are refused."""
    monkeypatch.setattr(live_push, "MAX_SUBSCRIBERS", 2)
    bench.subscribe("a=", job_id)
    records = [bench.request(name, job_id) for name in ("b=", "c=")]
    assert push(*records, bench.log(job_id)) == []
    assert sorted(bench.states(job_id).values()) == [True, True]
    refused = {name: gateway.received(name) for name in ("b=", "c=")}
    (error,) = [messages[0] for messages in refused.values() if messages[0]["type"] == "error"]
    assert (error["code"], error["job_id"]) == ("too_many_listeners", job_id)
    assert sequences(gateway.received("a=")) == [2]


def test_concurrent_push(bench: Bench, gateway: Gateway, job_id: str, calls: Calls) -> None:
    """If two functions send for the same job, a new subscriber misses nothing."""
    bench.subscribe("a=", job_id)
    requested = bench.request("b=", job_id)

    def another(_: Any) -> None:  # it has read the subscribers before `b=` requested, and sends event 2 to `a=`
        bench.log(job_id)
        bench.subscriptions.save_offset(job_id, 2, was=1)

    calls.on("dynamodb", "PutItem", another, when=lambda call: call.params["Item"].get("entity") == "subscribers")
    assert push(requested) == [number(requested)]
    assert push(requested) == []
    assert sequences(gateway.received("b="))[-2:] == [1, 2]
    push(bench.log(job_id))
    assert sequences(gateway.received("b=")) == [3]
