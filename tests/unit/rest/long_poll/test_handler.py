from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import events, ids
from core.dependencies import Dependencies, dependencies
from core.errors import Forbidden
from core.jobs import History, Job, JobStore, Snapshot, begin, cancel, links, views
from core.webhooks.deliveries.store import Attempt, Delivery, delivery_id, draft
from core.webhooks.endpoints.store import Endpoints, Vault
from kinds.document.kind import DOCUMENT
from rest.long_poll import handler as module
from rest.long_poll import jobs
from rest.long_poll.jobs import HISTORY_SECONDS
from rest.long_poll.polling import LAST_GAP_SECONDS, until_any, until_changed, until_ended
from tests.support import sse
from tests.unit.examples import NOW, FakeClock, event, job
from tests.unit.http_calls import Answer, call, problem

QUEUED, RUNNING = job(), job(status="running", version=2)
DONE = replace(RUNNING, status="completed", version=3)


class Watched:
    """A job that is seen to change at given moments of a clock; looking takes some time."""

    def __init__(self, *changes: tuple[float, Job], looking: float = 0.0) -> None:
        self.clock = FakeClock(0.0)
        self.looks: list[float] = []
        self._changes, self._looking = changes, looking

    def look(self) -> Snapshot:
        self.looks.append(self.clock.now)
        seen = [subject for moment, subject in self._changes if moment <= self.clock.now]
        self.clock.now += self._looking
        return Snapshot(seen[-1], None, None)

    def wait(self, seconds: float, known: str | None = None) -> Snapshot:
        return until_changed(self.look, known, seconds, clock=self.clock, sleep=self.clock.sleep)


# ── until_changed ────────────────────────────────────────────────────────────────────────────────────────────


def test_no_wait() -> None:
    """Without a wait the answer is there at the first look."""
    watched = Watched((0, QUEUED))
    assert watched.wait(0).job == QUEUED
    assert (watched.looks, watched.clock.sleeps) == ([0.0], [])


def test_a_final_job_is_not_waited_for() -> None:
    """Nothing changes any more in a job that has ended, so nobody waits for it, whatever they know."""
    watched = Watched((0, DONE))
    assert watched.wait(25, views.etag(Snapshot(DONE, None, None))).job == DONE
    assert watched.clock.sleeps == []


def test_what_is_new_is_answered_at_once() -> None:
    """A job that differs from what the caller knows is answered without a wait."""
    watched = Watched((0, RUNNING))
    assert watched.wait(25, views.etag(Snapshot(QUEUED, None, None))).job == RUNNING
    assert watched.clock.sleeps == []


@given(st.floats(0.01, 24), st.floats(0, 0.09))
def test_a_change_is_answered_within_a_second(moment: float, looking: float) -> None:
    """A change that comes in the middle of a wait is answered less than a second after it."""
    watched = Watched((0, QUEUED), (moment, RUNNING), looking=looking)
    assert watched.wait(25).job == RUNNING
    assert watched.looks[-1] - moment < 1


@given(st.floats(0, 25), st.floats(0, 0.5))
def test_never_past_the_limit(seconds: float, looking: float) -> None:
    """Without a change the last look begins when the time is up, and not later than one look may take."""
    watched = Watched((0, QUEUED), looking=looking)
    assert watched.wait(seconds).job == QUEUED
    assert sum(watched.clock.sleeps) <= seconds + 1e-9
    assert watched.looks[-1] <= max(seconds, watched.looks[-2] + looking if len(watched.looks) > 1 else 0) + 1e-9


def test_gaps_grow() -> None:
    """Gaps grow from a fifth of a second to nearly one, so that 25 seconds cost about 30 looks."""
    watched = Watched((0, QUEUED))
    watched.wait(25)
    gaps = watched.clock.sleeps[:-1]
    assert gaps == sorted(gaps)
    assert (gaps[0], gaps[-1]) == (0.2, LAST_GAP_SECONDS)
    assert len(watched.looks) < 35


def test_progress_is_a_change() -> None:
    """A batch that is done ends a wait, though the row is the same."""
    states = iter(
        [Snapshot(RUNNING, (1, 3), None), Snapshot(RUNNING, (1, 3), None), Snapshot(RUNNING, (2, 3), None)]
    )
    clock = FakeClock(0.0)
    found = until_changed(lambda: next(states), None, 25, clock=clock, sleep=clock.sleep)
    assert found.progress == (2, 3)


@pytest.mark.parametrize("form", ["{}", "W/{}", '"other", {}', '"other",W/{} ', "*"])
def test_forms_of_what_is_known(form: str) -> None:
    """Tags may be weak, one of several, or a star, as RFC 9110 has it."""
    watched = Watched((0, QUEUED))
    watched.wait(5, form.format(views.etag(Snapshot(QUEUED, None, None))))
    assert watched.clock.now == 5


# ── over HTTP ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def store(environment: dict[str, str], dynamodb: Any, jobs_table: str) -> JobStore:
    return JobStore(dynamodb, jobs_table)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The function's clock and its sleep."""
    clock = FakeClock(time.time())
    monkeypatch.setattr(time, "monotonic", clock)
    monkeypatch.setattr(time, "sleep", clock.sleep)
    return clock


@pytest.fixture
def job_id(store: JobStore) -> str:
    return store.submit(DOCUMENT, job(at=time.time(), link_key=links.make_key())).job.job_id


def ask(job_id: str, **options: Any) -> Answer:
    return call(module.handler, "GET", f"/jobs/{job_id}/status", **options)


def test_status(store: JobStore, job_id: str, clock: FakeClock) -> None:
    """The small answer, its tag, when to come back, and no cache."""
    seen = ask(job_id)
    snapshot = store.snapshot(job_id, owner="ana")
    assert seen.status == 200
    assert seen.json == views.status_view(snapshot, History()) | {"error": None}
    assert seen.headers["etag"] == views.etag(snapshot)
    assert seen.headers["retry-after"] == "5"
    assert seen.headers["cache-control"] == "no-store"
    assert "preference-applied" not in seen.headers
    assert clock.sleeps == []


def test_not_modified(store: JobStore, job_id: str, clock: FakeClock) -> None:
    """What the caller has already is a 304 without a body; after a change it is answered again."""
    tag = ask(job_id).headers["etag"]
    unchanged = ask(job_id, headers={"If-None-Match": tag})
    assert (unchanged.status, unchanged.body, unchanged.headers["etag"]) == (304, "", tag)
    store.apply(job_id, begin(DOCUMENT, stage="validate", lease="x"))
    changed = ask(job_id, headers={"if-none-match": tag})
    assert (changed.status, changed.json["status"]) == (200, "running")


def test_a_final_job_asks_for_no_more(store: JobStore, job_id: str) -> None:
    """A job that has ended carries no Retry-After, and is not waited for."""
    store.apply(job_id, cancel)
    ended = ask(job_id, query={"wait": "25"})
    assert (ended.json["status"], ended.json["stage"]) == ("canceled", "queued")
    assert "retry-after" not in ended.headers


@pytest.mark.parametrize(
    ("asked", "waited", "applied"),
    [
        ({"query": {"wait": "3"}}, 3, None),
        ({"query": {"wait": "0"}}, 0, None),
        ({"query": {"wait": "9999"}}, 25, None),
        ({"headers": {"Prefer": "wait=4"}}, 4, "wait=4"),
        ({"headers": {"prefer": "respond-async, wait=4"}}, 4, "wait=4"),
        ({"headers": {"Prefer": 'WAIT="4"; x'}}, 4, "wait=4"),
        ({"headers": {"Prefer": "wait=9999"}}, 25, "wait=25"),
        ({"headers": {"Prefer": "wait=soon"}}, 0, None),
        ({"headers": {"Prefer": "await=4"}}, 0, None),
        ({"headers": {"Prefer": "wait=4"}, "query": {"wait": "2"}}, 2, None),
    ],
)
def test_waiting(job_id: str, clock: FakeClock, asked: dict[str, Any], waited: float, applied: str | None) -> None:
    """A wait is asked for in the query or by preference, is limited, and is confirmed as it was honoured."""
    seen = ask(job_id, **asked)
    assert seen.status == 200
    assert sum(clock.sleeps) == pytest.approx(waited)
    assert seen.headers.get("preference-applied") == applied


@pytest.mark.parametrize("wait", ["-1", "soon", "1.5", ""])
def test_wrong_wait(job_id: str, wait: str) -> None:
    """A wait that is no number of seconds is refused by name."""
    assert problem(ask(job_id, query={"wait": wait}), 422, "invalid_request")["field"] == "wait"


def test_change_while_waiting(
    store: JobStore, job_id: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change in the middle of a wait is the answer, with the tag of the new state."""
    tag = ask(job_id).headers["etag"]

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if len(clock.sleeps) == 3:
            store.apply(job_id, begin(DOCUMENT, stage="validate", lease="x"))

    monkeypatch.setattr(time, "sleep", sleep)
    seen = ask(job_id, query={"wait": "25"}, headers={"If-None-Match": tag})
    assert (seen.status, seen.json["status"], len(clock.sleeps)) == (200, "running", 3)
    assert seen.headers["etag"] == views.etag(store.snapshot(job_id, owner="ana")) != tag


@pytest.mark.parametrize(
    "foreign", [lambda job_id: ids.new("job"), lambda job_id: "job_1", lambda job_id: job_id.lower()]
)
def test_no_such_job(job_id: str, foreign: Callable[[str], str]) -> None:
    """An id that is unknown or malformed is a 404."""
    problem(ask(foreign(job_id)), 404, "not_found")


def test_somebody_elses_job(job_id: str) -> None:
    """Another owner's job is answered like one that does not exist."""
    assert ask(job_id, owner="ben").json == ask(ids.new("job"), owner="ben").json


def test_scope(job_id: str) -> None:
    """Looking needs the scope to read."""
    problem(ask(job_id, scopes="jobs:write"), 403, "forbidden")


def test_usual_length(store: JobStore, job_id: str, clock: FakeClock) -> None:
    """What is usual for the owner's jobs of the kind is told, and read again after a minute and not before."""
    assert ask(job_id).json["expected_completion"] is None
    ended = job(status="completed", finished_at=events.timestamp(NOW + 600))
    for _ in range(5):
        store.record_duration(ended)
    clock.now += HISTORY_SECONDS - 1
    assert ask(job_id).json["expected_completion"] is None
    clock.now += 2
    seen = ask(job_id)
    created = datetime.fromisoformat(store.get(job_id).created_at).timestamp()
    assert seen.json["expected_completion"] == events.timestamp(created + 600)
    assert seen.headers["retry-after"] == "6"
    assert jobs.histories.of("ben", "document") == History()
    assert jobs.histories.of("ana", "replay") == History()


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────


def log_of(job_id: str, accept: str = "", **options: Any) -> Answer:
    headers = options.pop("headers", {}) | ({"Accept": accept} if accept else {})
    return call(module.handler, "GET", f"/jobs/{job_id}/events", headers=headers, **options)


def stored(store: JobStore, job_id: str) -> list[Any]:
    return [json.loads(each.body) for each in store.events(job_id)]


def test_events(store: JobStore, job_id: str, clock: FakeClock) -> None:
    """The log is answered as the events were stored, from any number on, and is not waited for."""
    store.apply(job_id, begin(DOCUMENT, stage="validate", lease="x"))
    store.apply(job_id, cancel)
    log = stored(store, job_id)
    answer = log_of(job_id)
    assert (answer.status, answer.json) == (200, {"events": log})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    for after in (0, 1, 2, 3, 4, 10**12):
        assert log_of(job_id, query={"after": str(after)}).json == {"events": log[after:]}
    assert clock.sleeps == []


@pytest.mark.parametrize("after", ["-1", "x", "1.5", ""])
@pytest.mark.parametrize("accept", ["", "text/event-stream"])
def test_wrong_place_in_the_log(job_id: str, after: str, accept: str) -> None:
    """A place in the log is a number from 0."""
    answer = log_of(job_id, accept, query={"after": after})
    assert problem(answer, 422, "invalid_request")["field"] == "after"


@pytest.mark.parametrize("accept", ["text/event-stream", "Text/Event-Stream", "text/event-stream, */*;q=0.1"])
def test_stream(store: JobStore, job_id: str, clock: FakeClock, accept: str) -> None:
    """Whoever accepts a stream gets the events with their numbers, at once, and is to come back for more."""
    store.apply(job_id, begin(DOCUMENT, stage="validate", lease="x"))
    answer = log_of(job_id, accept)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    heard = sse.parse(answer.body)
    assert [json.loads(each.data) for each in heard.events] == stored(store, job_id)
    assert [(each.type, each.last_event_id) for each in heard.events] == [
        ("document.uploaded", "1"),
        ("document.started", "2"),
    ]
    assert heard.retry == 1000
    assert clock.sleeps == []


@pytest.mark.parametrize(
    ("asked", "heard"),
    [
        ({"headers": {"Last-Event-ID": "1"}}, ["2"]),
        ({"headers": {"last-event-id": " 1 "}}, ["2"]),
        ({"query": {"after": "1"}}, ["2"]),
        ({"query": {"after": "1"}, "headers": {"Last-Event-ID": "0"}}, ["2"]),
        ({"query": {"after": "0"}, "headers": {"Last-Event-ID": "1"}}, ["2"]),
        ({"headers": {"Last-Event-ID": "x"}}, ["1", "2"]),
        ({"headers": {"Last-Event-ID": ""}}, ["1", "2"]),
    ],
)
def test_where_a_stream_goes_on(store: JobStore, job_id: str, asked: dict[str, Any], heard: list[str]) -> None:
    """A stream goes on after what the client saw last; an id that is none of ours is none."""
    store.apply(job_id, begin(DOCUMENT, stage="validate", lease="x"))
    answer = log_of(job_id, "text/event-stream", **asked)
    assert [each.last_event_id for each in sse.parse(answer.body).events] == heard


def test_a_stream_is_held_open(
    store: JobStore, job_id: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is nothing new a stream waits for it, and tells it when it comes."""

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if len(clock.sleeps) == 3:
            store.apply(job_id, begin(DOCUMENT, stage="validate", lease="x"))

    monkeypatch.setattr(time, "sleep", sleep)
    answer = log_of(job_id, "text/event-stream", headers={"Last-Event-ID": "1"})
    assert [each.type for each in sse.parse(answer.body).events] == ["document.started"]
    assert len(clock.sleeps) == 3


def test_a_stream_of_nothing(job_id: str, clock: FakeClock) -> None:
    """After the longest wait the stream ends without an event, and keeps what the client knows."""
    answer = log_of(job_id, "text/event-stream", headers={"Last-Event-ID": "1"})
    assert (answer.status, sse.parse(answer.body, last_event_id="1").last_event_id) == (200, "1")
    assert sse.parse(answer.body).events == []
    assert sum(clock.sleeps) == pytest.approx(25)


def test_the_end_of_a_stream(store: JobStore, job_id: str, clock: FakeClock) -> None:
    """After a job's last event comes `end`; whoever knows that event is told to come no more."""
    store.apply(job_id, cancel)
    last = sse.parse(log_of(job_id, "text/event-stream").body).events[-1]
    assert (last.type, json.loads(last.data), last.last_event_id) == ("end", {"status": "canceled"}, "2")
    for known in ("2", "3"):
        over = log_of(job_id, "text/event-stream", headers={"Last-Event-ID": known})
        assert (over.status, over.body, over.headers["cache-control"]) == (204, "", "no-store")
    assert clock.sleeps == []


def test_a_stream_for_who_knows_no_names(store: JobStore, job_id: str) -> None:
    """Asked for `message`, a stream names each event so; what else one may ask for is refused by its name."""
    store.apply(job_id, cancel)
    for answer in (
        log_of(job_id, "text/event-stream", query={"event": "message"}),
        follow(
            token_of(store, job_id),
            "events",
            headers={"Accept": "text/event-stream"},
            query={"event": "message"},
        ),
    ):
        heard = sse.parse(answer.body).events
        assert [each.type for each in heard] == ["message", "message"]
        assert [json.loads(each.data) for each in heard] == stored(store, job_id)
    for name in ("", "end", "document.canceled"):
        refused = log_of(job_id, "text/event-stream", query={"event": name})
        assert problem(refused, 422, "invalid_request")["field"] == "event"


@given(st.floats(0.01, 24))
def test_an_event_is_told_within_a_second(moment: float) -> None:
    """An event that comes in the middle of a wait is told less than a second after it."""
    clock, news = FakeClock(0.0), event()
    found = until_any(lambda: [news] if clock.now >= moment else [], 25, clock=clock, sleep=clock.sleep)
    assert found == [news]
    assert moment <= clock.now < moment + 1


@pytest.mark.parametrize("foreign", [lambda job_id: ids.new("job"), lambda job_id: "job_1", str.lower])
def test_no_such_log(job_id: str, foreign: Callable[[str], str]) -> None:
    """An id that is unknown or malformed is a 404, and another owner's job is answered like it."""
    unknown = log_of(foreign(job_id))
    problem(unknown, 404, "not_found")
    assert log_of(job_id, owner="ben").json == unknown.json
    problem(log_of(job_id, scopes="jobs:write"), 403, "forbidden")


# ── links ────────────────────────────────────────────────────────────────────────────────────────────────────


def follow(token: str, name: str = "status", **options: Any) -> Answer:
    return call(module.handler, "GET", f"/follow/{token}/{name}", owner=None, **options)


def token_of(store: JobStore, job_id: str, hours: int = 48) -> str:
    return links.make_token(store.get(job_id), now=time.time(), hours=hours)


@pytest.mark.parametrize("asked", [{}, {"query": {"wait": "3"}}, {"headers": {"Prefer": "wait=3"}}])
def test_status_by_link(store: JobStore, job_id: str, clock: FakeClock, asked: dict[str, Any]) -> None:
    """A link answers without a key what the key's owner is answered, tags and waits included."""
    linked, owned = follow(token_of(store, job_id), **asked), ask(job_id, **asked)
    assert (linked.status, linked.json, linked.headers) == (200, owned.json, owned.headers)
    known = {"If-None-Match": linked.headers["etag"]}
    assert follow(token_of(store, job_id), headers=known).status == 304


@pytest.mark.parametrize("accept", ["", "text/event-stream"])
def test_events_by_link(store: JobStore, job_id: str, accept: str) -> None:
    """So does the link to the log, as JSON and as a stream."""
    store.apply(job_id, cancel)
    for options in ({}, {"query": {"after": "1"}}, {"headers": {"Last-Event-ID": "2"}}):
        sent = {"Accept": accept} | options.get("headers", {})
        query = options.get("query")
        linked = follow(token_of(store, job_id), "events", headers=sent, query=query)
        assert linked == log_of(job_id, headers=sent, query=query)


def test_links_that_do_not_hold(store: JobStore, job_id: str) -> None:
    """A token that is forged, over, another's, of no job or no token at all: the same 403, word for word."""
    other = store.submit(DOCUMENT, job(at=time.time(), link_key=links.make_key())).job.job_id
    keyless = store.submit(DOCUMENT, job(at=time.time())).job
    ulid, expires, signature = token_of(store, job_id).split(".")
    wrong = [
        "x",
        f"{ulid}.{expires}.{'A' * 32}",
        f"{ids.ulid_of(other)}.{expires}.{signature}",
        f"{ids.ulid_of(ids.new('job'))}.{expires}.{signature}",
        token_of(store, job_id, hours=-2),
        links.make_token(keyless, now=time.time(), hours=48),
    ]
    for name in ("status", "events"):
        answers = [follow(token, name) for token in wrong]
        assert problem(answers[0], 403, "forbidden")["detail"] == links.REFUSED
        assert {answer.body for answer in answers} == {answers[0].body}
    with pytest.raises(Forbidden):
        links.check_token(links.read_token(token_of(store, other)), store.get(job_id), now=0)


# ── a test of an endpoint ────────────────────────────────────────────────────────────────────────────────────


def sent(status: str) -> Delivery:
    """A ping's delivery in this status."""
    facts = {"event": "ping", "owner": "ana", "format": "recado", "body": "{}", "status": status}
    return draft(event_id=ids.new("evt"), endpoint_id=WEBHOOK, now=NOW, retention_seconds=60, **facts)


WEBHOOK = ids.new("wh")


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        (None, False),
        ("pending", False),
        ("sending", False),
        ("delivered", True),
        ("failed", True),
        ("canceled", True),
    ],
)
def test_until_a_ping_has_ended(status: str | None, ended: bool) -> None:
    """A ping is waited for while it is not written yet, or on its way; not any longer once it has ended."""
    clock = FakeClock(0.0)
    found = sent(status) if status else None
    assert until_ended(lambda: found, 5, clock=clock, sleep=clock.sleep) is ended
    assert clock.now == (0 if ended else 5)


@given(st.floats(0.01, 24))
def test_the_end_of_a_ping_is_seen_within_a_second(moment: float) -> None:
    """The end of a ping is answered less than a second after it."""
    clock = FakeClock(0.0)

    def look() -> Delivery | None:
        return sent("delivered") if clock.now >= moment else None

    assert until_ended(look, 25, clock=clock, sleep=clock.sleep)
    assert moment <= clock.now < moment + 1


@pytest.fixture
def parts(environment: dict[str, str], store: JobStore, deliveries_table: str) -> Dependencies:
    return dependencies


@pytest.fixture
def webhook_id(parts: Dependencies, dynamodb: Any, jobs_table: str, secrets_key: str, kms: Any) -> str:
    endpoints = Endpoints(dynamodb, jobs_table, Vault(kms, secrets_key))
    endpoint, _ = endpoints.draft("ana", url="https://example.com/h", events=("document.failed",))
    endpoints.create(endpoint)
    return endpoint.endpoint_id


def ping(webhook_id: str, **options: Any) -> Answer:
    return call(module.handler, "POST", f"/webhooks/{webhook_id}/test", **options)


def pings(parts: Dependencies, owner: str = "ana") -> list[Any]:
    return [json.loads(body) for body in parts.owner_log.page(owner)[0]]


def answering(parts: Dependencies, webhook_id: str, clock: FakeClock, **outcome: Any) -> Callable[[float], None]:
    """A sleep during whose third call the ping is sent, as dispatch and sender would do it, and is answered."""

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if len(clock.sleeps) == 3:
            (event,) = pings(parts)
            facts = {"event": "ping", "owner": "ana", "format": "recado", "body": json.dumps(event)}
            delivery = parts.deliveries.create(
                draft(
                    event_id=event["event_id"],
                    endpoint_id=webhook_id,
                    now=time.time(),
                    retention_seconds=60,
                    single=True,
                    **facts,
                )
            )
            claimed = parts.deliveries.claim(delivery.delivery_id, attempts=0, manual=True)
            assert claimed is not None
            attempt = Attempt(number=1, at="now", trigger="manual", url="https://example.com/h", **outcome)
            parts.deliveries.record(claimed, attempt, wait=None)

    return sleep


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        ({"status": 204, "response_headers": {"content-type": "text/plain"}, "body": "ok"}, "delivered"),
        ({"status": 500, "error": "http_5xx"}, "failed"),
        ({"error": "blocked", "message": "No."}, "failed"),
    ],
)
def test_ping(
    parts: Dependencies,
    webhook_id: str,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    outcome: dict[str, Any],
    status: str,
) -> None:
    """A ping is written to the owner's log, and answered with what the endpoint answered as soon as it has."""
    monkeypatch.setattr(time, "sleep", answering(parts, webhook_id, clock, **outcome))
    seen = ping(webhook_id)
    (event,) = pings(parts)
    assert (event["event"], event["endpoint_id"]) == ("ping", webhook_id)
    assert (seen.status, seen.json["status"], seen.json["event_id"]) == (200, status, event["event_id"])
    (attempt,) = seen.json["attempts"]
    assert {name: attempt[name] for name in outcome} == outcome
    assert json.loads(seen.json["payload"]) == event
    assert seen.json["links"]["self"] == f"https://api.example.com/v1/deliveries/{seen.json['delivery_id']}"
    assert seen.headers["cache-control"] == "no-store"
    assert len(clock.sleeps) == 3


def test_no_answer_in_time(parts: Dependencies, webhook_id: str, clock: FakeClock) -> None:
    """After the longest wait there is a 202 that says where the answer will be."""
    seen = ping(webhook_id)
    (event,) = pings(parts)
    identifier = delivery_id(event["event_id"], webhook_id)
    assert seen.status == 202
    assert seen.json == {
        "delivery_id": identifier,
        "links": {"self": f"https://api.example.com/v1/deliveries/{identifier}"},
    }
    assert seen.headers["location"] == f"../../deliveries/{identifier}"
    assert seen.headers["retry-after"] == "1"
    assert sum(clock.sleeps) == pytest.approx(25)


def test_ping_of_a_disabled_endpoint(
    parts: Dependencies, webhook_id: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disabled endpoint can be tested: whoever mends it wants to know before switching it on."""
    parts.endpoints.disable(parts.endpoints.get("ana", webhook_id), reason="gone", also=[])
    monkeypatch.setattr(time, "sleep", answering(parts, webhook_id, clock, status=204))
    assert ping(webhook_id).status == 200


def test_ping_of_the_default(
    parts: Dependencies, dynamodb: Any, jobs_table: str, secrets_key: str, kms: Any
) -> None:
    """The default endpoint has no URL to be tested; before it is there it is a 404 like any other."""
    problem(ping("default"), 404, "not_found")
    endpoints = Endpoints(dynamodb, jobs_table, Vault(kms, secrets_key))
    endpoint, _ = endpoints.draft("ana", "default")
    endpoints.create(endpoint)
    problem(ping("default"), 409, "conflict")
    assert pings(parts) == []


def test_ping_of_somebody_elses(parts: Dependencies, webhook_id: str, clock: FakeClock) -> None:
    """Another owner's endpoint is answered like one that does not exist, and nothing is sent."""
    foreign = ping(webhook_id, owner="ben")
    problem(foreign, 404, "not_found")
    for unknown in (ids.new("wh"), "x", webhook_id.lower()):
        assert ping(unknown, owner="ben").json == foreign.json
    assert pings(parts) == pings(parts, "ben") == []


def test_scope_of_a_ping(parts: Dependencies, webhook_id: str, clock: FakeClock) -> None:
    """A test calls somebody, so it needs the scope to write."""
    problem(ping(webhook_id, scopes="jobs:read jobs:write search webhooks:read"), 403, "forbidden")
    assert pings(parts) == []
