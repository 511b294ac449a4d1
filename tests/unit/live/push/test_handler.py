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
from core.live.messages import MESSAGE_BYTES
from core.live.subscriptions import CONNECTING_SECONDS, KEPT_SECONDS, Connection, Subscriptions
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
    """Jobs with logs, who listens to them, and the stream between."""

    def __init__(self, dynamodb: Any, gateway: Gateway) -> None:
        self.dynamodb, self.gateway = dynamodb, gateway
        self.jobs = JobStore(dynamodb, JOBS)
        self.subscriptions = Subscriptions(dynamodb, JOBS)
        self._numbers = 1000

    def job(self, **facts: Any) -> str:
        """A job whose log has its first event."""
        return self.jobs.submit(DOCUMENT, job(at=NOW, **facts)).job.job_id

    def log(self, job_id: str, *, note: str = "", **facts: Any) -> Record:
        """Another event in a job's log, as fast as a test can write it; returns the stream's record."""
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

    def asked(self, job_id: str, connection_id: str) -> Record:
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
        """A connection that was made some seconds ago."""
        return Subscriptions(self.dynamodb, JOBS, clock=lambda: time.time() - ago).connect(name, owner=owner)

    def ask(self, name: str, job_id: str, *, after: int = 0, ago: float = 60) -> Record:
        self.subscriptions.subscribe(self.connect(name, ago=ago), job_id, after=after)
        return self.asked(job_id, name)

    def join(self, name: str, job_id: str) -> None:
        """Ask, and be sent everything so far."""
        assert push(self.ask(name, job_id)) == []
        self.gateway.heard(name)

    def states(self, job_id: str) -> dict[str, bool]:
        """Who listens, and whether it has joined."""
        return {one.connection_id: one.joined for one in self.subscriptions.subscribers(job_id).subscriptions}


@pytest.fixture
def bench(environment: dict[str, str], dynamodb: Any, jobs_table: str, gateway: Gateway) -> Bench:
    return Bench(dynamodb, gateway)


@pytest.fixture
def job_id(bench: Bench) -> str:
    return bench.job()


@pytest.fixture
def calls(bench: Bench) -> Any:
    """Every call to AWS, recorded."""
    calls = Calls(Clock())
    with calls.intercepted():
        yield calls


class Context:
    def __init__(self, *seconds: float) -> None:
        self._seconds = list(seconds)

    def get_remaining_time_in_millis(self) -> int:
        return int(1000 * (self._seconds.pop(0) if len(self._seconds) > 1 else self._seconds[0]))


def push(*records: Record, left: Context | None = None) -> list[str]:
    """The sequence numbers that the function reports as failed. `left`: what it is sent of the time it has."""
    answer = handler({"Records": list(records)}, left or Context(60))
    return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


def number(record: Record) -> str:
    found: str = record["dynamodb"]["SequenceNumber"]
    return found


def subscribed(job_id: str, sequence: int) -> dict[str, Any]:
    return {"type": "subscribed", "job_id": job_id, "sequence": sequence}


# ── who listens to a job ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("after", "missed"), [(0, [1, 2, 3]), (2, [3]), (3, []), (9, []), (999_999, [])])
def test_who_asks_is_told_what_it_missed(
    bench: Bench, gateway: Gateway, job_id: str, after: int, missed: list[int]
) -> None:
    """The log after the number asked for, then how far the job is; from then on what is new."""
    bench.log(job_id)
    bench.log(job_id)
    assert push(bench.ask("a=", job_id, after=after)) == []
    *replay, last = gateway.heard("a=")
    assert sequences(replay) == missed
    assert last == subscribed(job_id, 3)
    assert bench.states(job_id) == {"a=": True}
    assert push(bench.log(job_id)) == []
    assert sequences(gateway.heard("a=")) == [4]


def test_events_are_told_as_they_were_stored(bench: Bench, gateway: Gateway, job_id: str) -> None:
    """A listener gets each payload as it is in the log."""
    push(bench.ask("a=", job_id))
    offset, _ = gateway.heard("a=")
    assert offset == {"type": "events", "events": [event.payload for event in bench.jobs.events(job_id)]}


def test_several_at_once(bench: Bench, gateway: Gateway, job_id: str) -> None:
    """A batch's events are one message; who joins in the middle of them misses none and hears none twice."""
    bench.join("a=", job_id)
    records = [bench.log(job_id), bench.log(job_id), bench.ask("b=", job_id, after=1), bench.log(job_id)]
    assert push(*records) == []
    assert [sequences([message]) for message in gateway.heard("a=")] == [[2, 3, 4]]
    replay, last = gateway.heard("b=")
    assert (sequences([replay]), last) == ([2, 3, 4], subscribed(job_id, 4))
    assert push(*records) == []
    assert gateway.sent == {}


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from(["log", "ask", "again", "fail", "push"]), st.integers(0, 4)), max_size=25)
)
def test_whatever_the_stream_does(bench: Bench, story: list[tuple[str, int]]) -> None:
    """Records that come twice, late or not alone, sockets that fail: no event is missed, none comes too early."""
    job_id, gateway = bench.job(), bench.gateway
    gateway.sent.clear()
    records: list[Record] = []
    for verb, fact in story:
        name = f"c{fact % 3}="
        if verb == "log":
            records.append(bench.log(job_id))
        elif verb == "ask":
            records.append(bench.ask(name, job_id))
        elif verb == "fail":
            gateway.troubles[name] = THROTTLED
        elif records:
            push(*records[-1 - fact :] if verb == "again" else records[:1] + records[-1:])
    gateway.troubles.clear()
    for _ in range(2):
        push(*records, bench.log(job_id))
    last = bench.jobs.get(job_id).sequence
    for name in bench.states(job_id):
        known = 0
        for sequence in sequences(gateway.heard(name)):
            assert sequence <= known + 1
            known = max(known, sequence)
        assert known == last


def test_a_long_log(bench: Bench, gateway: Gateway, job_id: str) -> None:
    """More events than a page of the log has are replayed in order, in few messages."""
    item = bench.dynamodb.get_item(TableName=JOBS, Key={"pk": f"JOB#{job_id}", "sk": "EVENT#000001"})["Item"]
    for sequence in range(2, 1201):
        body = events.encode({"event": "document.progressed", "sequence": sequence, "note": "x" * 200})
        row = item | {"sk": f"EVENT#{sequence:06d}", "sequence": sequence, "body": body}
        bench.dynamodb.put_item(TableName=JOBS, Item=row)
    push(bench.ask("a=", job_id))
    heard = gateway.heard("a=")
    assert sequences(heard) == list(range(1, 1201))
    assert heard[-1] == subscribed(job_id, 1200)
    assert len(heard) < 15


def test_a_huge_event(bench: Bench, gateway: Gateway, job_id: str) -> None:
    """An event that fits in no message is cut down to its envelope and keeps its place."""
    bench.join("a=", job_id)
    push(bench.log(job_id, note="x" * MESSAGE_BYTES), bench.log(job_id))
    assert [("truncated" in event) for event in gateway.heard("a=")[0]["events"]] == [True, False]


def test_jobs_do_not_mix(bench: Bench, gateway: Gateway, job_id: str) -> None:
    """Each hears of its own job alone, and each job is sent of once, however its records lie."""
    other = bench.job()
    bench.join("a=", job_id)
    bench.join("b=", other)
    push(bench.log(job_id), bench.log(other), bench.log(job_id), bench.log(other))
    for name, its_job in (("a=", job_id), ("b=", other)):
        (message,) = gateway.heard(name)
        assert [(event["job_id"], event["sequence"]) for event in message["events"]] == [
            (its_job, 2),
            (its_job, 3),
        ]


def test_nobody_listens(bench: Bench, gateway: Gateway, job_id: str, calls: Calls) -> None:
    """Where nobody listens to a job its log is not read, and how far it is not noted."""
    assert push(bench.log(job_id), bench.log(job_id)) == []
    pushed = [call for call in calls.log if call.operation not in ("GetItem", "PutItem")]
    asked = [call.params["ExpressionAttributeValues"] for call in pushed]
    assert asked == [{":pk": f"JOB#{job_id}", ":sk": "LIVE"}, {":pk": "OWNER#ana", ":sk": "FOLLOW#document#"}]
    assert bench.subscriptions.subscribers(job_id).offset == 0


def test_nothing_is_read_for_who_has_heard_it(bench: Bench, job_id: str, calls: Calls) -> None:
    """From the log is read what somebody has not heard, not all of it for each event."""
    bench.join("a=", job_id)
    record = bench.log(job_id)
    calls.log.clear()
    push(record)
    lows = [
        call.params["ExpressionAttributeValues"].get(":low") for call in calls.log if call.operation == "Query"
    ]
    assert lows == [None, "EVENT#000002", "EVENT#000003", None]


def test_a_long_silence(bench: Bench, gateway: Gateway, job_id: str, dynamodb: Any) -> None:
    """Where it is not known any more what has been sent, all is sent again: rather twice than not at all."""
    bench.join("a=", job_id)
    Subscriptions(dynamodb, JOBS, clock=lambda: NOW - KEPT_SECONDS - 1).save_offset(job_id, 1, was=1)
    push(bench.log(job_id))
    assert sequences(gateway.heard("a=")) == [1, 2]


def test_an_expired_job(bench: Bench, gateway: Gateway, dynamodb: Any) -> None:
    """Where a job has expired since it was asked for, nobody listens to it any more."""
    gone = ids.new("job")
    assert push(bench.ask("a=", gone)) == []
    assert bench.states(gone) == {}
    assert gateway.sent == {}


def test_expired_listeners(bench: Bench, gateway: Gateway, job_id: str) -> None:
    """A row that has expired and is still there is sent nothing."""
    record = bench.ask("a=", job_id, ago=DAY)
    assert push(record) == []
    assert gateway.sent == {}


def test_a_subscription_that_has_ended(bench: Bench, gateway: Gateway, job_id: str) -> None:
    """The record of a subscription that has ended in the meantime tells nobody."""
    record = bench.ask("a=", job_id)
    bench.subscriptions.unsubscribe("a=", job_id)
    assert push(record) == []
    assert gateway.sent == {}


def test_many_listeners(bench: Bench, gateway: Gateway, job_id: str, calls: Calls) -> None:
    """An event goes to hundreds at the price of one look: those who have joined cost no write."""
    names = [f"c{place}=" for place in range(200)]
    connection = bench.connect("c=")
    for name in names:
        bench.subscriptions.subscribe(
            Connection(connection_id=name, owner="ana", connected_at=connection.connected_at), job_id
        )
    push(bench.asked(job_id, "c0="))
    assert {len(gateway.heard(name)) for name in names} == {2}
    record = bench.log(job_id)
    calls.log.clear()
    push(record)
    assert {tuple(sequences(gateway.heard(name))) for name in names} == {(2,)}
    assert len(calls.log) < 10


def test_a_log_is_packed_once(
    bench: Bench, gateway: Gateway, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many ask for the same, it is made into messages once: copies of a long log would fill the memory."""
    packed: list[int] = []

    def of_events(log: Iterable[Event]) -> list[str]:
        packed.append(1)
        return pack(log)

    pack = messages.of_events
    monkeypatch.setattr(messages, "of_events", of_events)
    records = [bench.ask(f"c{place}=", job_id, after=place % 2) for place in range(20)]
    push(*records)
    assert {tuple(sequences(gateway.heard(f"c{place}="))) for place in range(20)} == {(1,), ()}
    assert len(packed) == 2


# ── sockets that break ───────────────────────────────────────────────────────────────────────────────────────


def test_during_the_handshake(
    bench: Bench, gateway: Gateway, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who seems to be gone some seconds after it has come is asked for again, however often, and offset later."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    gateway.troubles["a="] = GONE
    assert push(bench.ask("a=", job_id, ago=0)) == []
    for _ in range(2 * live_push.MAX_TRIES):
        assert push(bench.asked(job_id, "a=")) == []
    assert bench.states(job_id) == {"a=": False}
    assert pauses == [live_push.HANDSHAKE_SECONDS] * (1 + 2 * live_push.MAX_TRIES)
    assert bench.subscriptions.connection("a=") is not None
    gateway.troubles.clear()
    push(bench.asked(job_id, "a="))
    assert sequences(gateway.heard("a=")) == [1]
    assert bench.states(job_id) == {"a=": True}


@pytest.mark.parametrize("joined", [False, True])
def test_who_is_gone(bench: Bench, gateway: Gateway, job_id: str, joined: bool) -> None:
    """Who vanished is forgotten with all that it listens to, and others are sent."""
    other = bench.job()
    connection = bench.connect("a=", ago=CONNECTING_SECONDS + 1)
    bench.subscriptions.subscribe(connection, job_id)
    bench.subscriptions.subscribe(connection, other)
    bench.subscriptions.follow(connection, "document")
    if joined:
        push(bench.asked(job_id, "a="))
    bench.join("b=", job_id)
    gateway.sent.clear()
    gateway.troubles["a="] = GONE
    assert push(bench.log(job_id)) == []
    assert (bench.states(job_id), bench.states(other)) == ({"b=": True}, {})
    assert bench.subscriptions.connection("a=") is None
    assert bench.subscriptions.followers("ana", "document") == []
    assert sequences(gateway.heard("b=")) == [2]


def test_who_vanishes_from_a_hundred_jobs(bench: Bench, gateway: Gateway) -> None:
    """Whatever a vanished connection listened to is gone at the first record that finds it out."""
    connection = bench.connect("a=")
    jobs = [bench.job() for _ in range(100)]
    for one in jobs:
        bench.subscriptions.subscribe(connection, one)
    gateway.troubles["a="] = GONE
    assert push(bench.asked(jobs[50], "a=")) == []
    assert not any(bench.states(one) for one in jobs)
    assert bench.subscriptions.count("a=") == 0


def test_a_throttled_socket(bench: Bench, gateway: Gateway, job_id: str) -> None:
    """Who cannot be reached is sent later what it missed, however much others have been sent by then."""
    bench.join("a=", job_id)
    bench.join("b=", job_id)
    gateway.troubles["a="] = THROTTLED
    assert push(bench.log(job_id)) == []
    assert push(bench.log(job_id)) == []
    assert sequences(gateway.heard("b=")) == [2, 3]
    gateway.troubles.clear()
    push(bench.asked(job_id, "a="))
    *replay, last = gateway.heard("a=")
    assert (sequences(replay), last) == ([2, 3], subscribed(job_id, 3))


@pytest.mark.parametrize(("trouble", "ago"), [(THROTTLED, 60), (THROTTLED, 0)])
def test_tries_end(bench: Bench, gateway: Gateway, job_id: str, trouble: str, ago: float) -> None:
    """Who cannot be reached for long is cut off, for its client to come back, and is not asked for any more."""
    post = gateway.post_to_connection
    gateway.troubles["a="] = trouble
    record = bench.ask("a=", job_id, ago=ago)
    for _ in range(live_push.MAX_TRIES):
        push(record)
        record = bench.asked(job_id, "a=")
    assert bench.states(job_id) == {"a=": False}

    def post_in_trouble(**options: Any) -> None:
        gateway.troubles["a="] = trouble
        try:
            post(**options)
        finally:
            gateway.troubles.clear()

    gateway.post_to_connection = post_in_trouble  # type: ignore[method-assign]
    push(record)
    assert bench.states(job_id) == {}
    assert bench.subscriptions.connection("a=") is None
    assert gateway.closed == ["a="]


# ── who follows a kind ───────────────────────────────────────────────────────────────────────────────────────


def test_followers(bench: Bench, gateway: Gateway, job_id: str) -> None:
    """Who follows a kind hears every event of the owner's jobs of that kind, and nothing else."""
    bench.subscriptions.follow(bench.connect("a="), "document")
    bench.subscriptions.follow(bench.connect("b=", owner="ben"), "document")
    bench.subscriptions.follow(bench.connect("c="), "replay")
    assert push(bench.log(job_id), bench.log(job_id)) == []
    (message,) = gateway.heard("a=")
    assert sequences([message]) == [2, 3]
    assert gateway.sent == {}


def test_followers_who_listen_are_told_once(bench: Bench, gateway: Gateway, job_id: str) -> None:
    """A follower who also listens to the job hears its events but once."""
    bench.join("a=", job_id)
    connection = bench.subscriptions.connection("a=")
    assert connection is not None
    bench.subscriptions.follow(connection, "document")
    bench.subscriptions.follow(bench.connect("b="), "document")
    push(bench.log(job_id))
    assert sequences(gateway.heard("a=")) == sequences(gateway.heard("b=")) == [2]


def test_a_subscription_is_no_news_to_followers(bench: Bench, gateway: Gateway, job_id: str) -> None:
    """Somebody's asking to listen tells followers nothing."""
    bench.subscriptions.follow(bench.connect("a="), "document")
    push(bench.ask("b=", job_id))
    assert gateway.heard("a=") == []


@pytest.mark.parametrize("trouble", [GONE, THROTTLED])
def test_a_follower_that_breaks(bench: Bench, gateway: Gateway, job_id: str, trouble: str) -> None:
    """Nobody could tell a follower later what it missed, so it is cut off; the others are sent."""
    for name in ("a=", "b=", "c="):
        bench.subscriptions.follow(bench.connect(name), "document")
    gateway.troubles["b="] = trouble
    assert push(bench.log(job_id)) == []
    assert sequences(gateway.heard("a=")) == sequences(gateway.heard("c=")) == [2]
    assert bench.subscriptions.followers("ana", "document") == ["a=", "c="]
    assert bench.subscriptions.connection("b=") is None


def test_a_follower_is_closed(bench: Bench, gateway: Gateway, job_id: str) -> None:
    """A follower that was not reached is closed, so that it comes back."""
    bench.subscriptions.follow(bench.connect("a="), "document")
    post = gateway.post_to_connection

    def post_in_trouble(**options: Any) -> None:
        gateway.troubles["a="] = THROTTLED
        try:
            post(**options)
        finally:
            gateway.troubles.clear()

    gateway.post_to_connection = post_in_trouble  # type: ignore[method-assign]
    push(bench.log(job_id))
    assert gateway.closed == ["a="]


def test_a_thousand_followers(bench: Bench, gateway: Gateway, job_id: str) -> None:
    """A thousand followers all hear of an event."""
    for place in range(1000):
        bench.subscriptions.follow(
            Connection(connection_id=f"c{place}=", owner="ana", connected_at=int(NOW)), "document"
        )
    push(bench.log(job_id))
    assert len(gateway.sent) == 1000


# ── batches that fail ────────────────────────────────────────────────────────────────────────────────────────


def test_from_the_first_that_fails_on(
    bench: Bench, gateway: Gateway, calls: Calls, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    """The first record of the first job that fails is reported; it and the rest are sent when they come again."""
    first, second, third = (bench.job() for _ in range(3))
    for name, each in zip(("a=", "b=", "c="), (first, second, third), strict=True):
        bench.join(name, each)
    records = [bench.log(each) for each in (first, second, first, third, second)]
    calls.log.clear()
    # a job's queries are four: its subscribers, its log until there is no more, and its followers
    calls.fail("dynamodb", "Query", "InternalServerError", every=5, times=1)
    assert push(*records) == [number(records[1])]
    assert [line["job_id"] for line in logged()] == [second]
    assert (sequences(gateway.heard("a=")), gateway.heard("b="), gateway.heard("c=")) == ([2, 3], [], [])
    assert push(*records[1:]) == []
    assert (gateway.heard("a="), sequences(gateway.heard("b=")), sequences(gateway.heard("c="))) == (
        [],
        [2, 3],
        [2],
    )


def test_what_cannot_be_noted_is_told_again(bench: Bench, gateway: Gateway, job_id: str, calls: Calls) -> None:
    """Where it could not be noted how far a job was sent, that comes again: rather twice than not at all."""
    bench.join("a=", job_id)
    record = bench.log(job_id)
    calls.fail("dynamodb", "PutItem", "ThrottlingException", times=1)
    assert push(record) == [number(record)]
    assert push(record) == []
    assert sequences(gateway.heard("a=")) == [2, 2]


def test_a_poisoned_record(
    bench: Bench, gateway: Gateway, job_id: str, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    """A record that can never be read stops nobody: its job's listeners are sent what the log has, others too."""
    other = bench.job()
    bench.join("a=", job_id)
    bench.join("b=", other)
    record = bench.log(job_id)
    del record["dynamodb"]["NewImage"]["sequence"]
    assert push(record, bench.log(other)) == []
    assert sequences(gateway.heard("a=")) == sequences(gateway.heard("b=")) == [2]
    assert [line["job_id"] for line in logged()] == [job_id]


def test_no_time_left(bench: Bench, gateway: Gateway, job_id: str) -> None:
    """What might not be sent to the end in this turn is sent in the next."""
    other = bench.job()
    bench.join("a=", job_id)
    bench.join("b=", other)
    first, second = bench.log(job_id), bench.log(other)
    assert push(first, second, left=Context(15, 14.9)) == [number(second)]
    assert (sequences(gateway.heard("a=")), gateway.heard("b=")) == ([2], [])


def test_a_full_room(bench: Bench, gateway: Gateway, job_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the most listeners that a job may have, who asks is sent so; who has joined notices nothing."""
    monkeypatch.setattr(live_push, "MAX_LISTENERS", 2)
    bench.join("a=", job_id)
    records = [bench.ask(name, job_id) for name in ("b=", "c=")]
    assert push(*records, bench.log(job_id)) == []
    assert sorted(bench.states(job_id).values()) == [True, True]
    refused = {name: gateway.heard(name) for name in ("b=", "c=")}
    (error,) = [said[0] for said in refused.values() if said[0]["type"] == "error"]
    assert (error["code"], error["job_id"]) == ("too_many_listeners", job_id)
    assert sequences(gateway.heard("a=")) == [2]


def test_two_at_once(bench: Bench, gateway: Gateway, job_id: str, calls: Calls) -> None:
    """Should two tell the same job at once, who asks meanwhile lacks nothing in the end."""
    bench.join("a=", job_id)
    asked = bench.ask("b=", job_id)

    def another(_: Any) -> None:  # it has read the subscribers before `b=` asked, and tells `a=` of event 2
        bench.log(job_id)
        bench.subscriptions.save_offset(job_id, 2, was=1)

    calls.on("dynamodb", "PutItem", another, when=lambda call: call.params["Item"].get("entity") == "subscribers")
    assert push(asked) == [number(asked)]
    assert push(asked) == []
    assert sequences(gateway.heard("b="))[-2:] == [1, 2]
    push(bench.log(job_id))
    assert sequences(gateway.heard("b=")) == [3]


def test_no_records(bench: Bench) -> None:
    """An empty batch is none."""
    assert push() == []
