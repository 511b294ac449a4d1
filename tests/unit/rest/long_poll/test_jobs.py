"""A job's status and events (rest.long_poll.jobs)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from core import events, ids
from core.errors import Forbidden
from core.jobs import History, JobStore, begin, cancel, links, views
from kinds.document.kind import DOCUMENT
from rest.long_poll import handler as module
from rest.long_poll import jobs
from rest.long_poll.jobs import HISTORY_SECONDS
from tests.support import sse
from tests.unit.examples import NOW, FakeClock, job
from tests.unit.http_calls import Answer, call, problem


def get_status(job_id: str, **options: Any) -> Answer:
    return call(module.handler, "GET", f"/jobs/{job_id}/status", **options)


def test_status(store: JobStore, job_id: str, clock: FakeClock) -> None:
    """The response has the status, an ETag, Retry-After, and is not cached."""
    seen = get_status(job_id)
    snapshot = store.snapshot(job_id, owner="ana")
    assert seen.status == 200
    assert seen.json == views.status_view(snapshot, History()) | {"error": None}
    assert seen.headers["etag"] == views.etag(snapshot)
    assert seen.headers["retry-after"] == "5"
    assert seen.headers["cache-control"] == "no-store"
    assert "preference-applied" not in seen.headers
    assert clock.sleeps == []


def test_not_modified(store: JobStore, job_id: str, clock: FakeClock) -> None:
    """A known status is a 304 without a body; after a change it is a 200."""
    tag = get_status(job_id).headers["etag"]
    unchanged = get_status(job_id, headers={"If-None-Match": tag})
    assert (unchanged.status, unchanged.body, unchanged.headers["etag"]) == (304, "", tag)
    store.apply(job_id, begin(DOCUMENT, stage="validate", lease="x"))
    changed = get_status(job_id, headers={"if-none-match": tag})
    assert (changed.status, changed.json["status"]) == (200, "running")


def test_status_of_final_job(store: JobStore, job_id: str) -> None:
    """A job that has ended has no Retry-After, and there is no wait."""
    store.apply(job_id, cancel)
    ended = get_status(job_id, query={"wait": "25"})
    assert (ended.json["status"], ended.json["stage"]) == ("canceled", "queued")
    assert "retry-after" not in ended.headers


@pytest.mark.parametrize(
    ("options", "waited", "applied"),
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
def test_wait(job_id: str, clock: FakeClock, options: dict[str, Any], waited: float, applied: str | None) -> None:
    """A wait in the query or in `Prefer` is limited, and a preference is confirmed."""
    seen = get_status(job_id, **options)
    assert seen.status == 200
    assert sum(clock.sleeps) == pytest.approx(waited)
    assert seen.headers.get("preference-applied") == applied


@pytest.mark.parametrize("wait", ["-1", "soon", "1.5", ""])
def test_invalid_wait(job_id: str, wait: str) -> None:
    """An invalid wait is a 422 that names the field."""
    assert problem(get_status(job_id, query={"wait": wait}), 422, "invalid_request")["field"] == "wait"


def test_change_while_waiting(
    store: JobStore, job_id: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change during the wait is returned, with its ETag."""
    tag = get_status(job_id).headers["etag"]

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if len(clock.sleeps) == 3:
            store.apply(job_id, begin(DOCUMENT, stage="validate", lease="x"))

    monkeypatch.setattr(time, "sleep", sleep)
    seen = get_status(job_id, query={"wait": "25"}, headers={"If-None-Match": tag})
    assert (seen.status, seen.json["status"], len(clock.sleeps)) == (200, "running", 3)
    assert seen.headers["etag"] == views.etag(store.snapshot(job_id, owner="ana")) != tag


@pytest.mark.parametrize(
    "foreign", [lambda job_id: ids.new("job"), lambda job_id: "job_1", lambda job_id: job_id.lower()]
)
def test_unknown_job(job_id: str, foreign: Callable[[str], str]) -> None:
    """An unknown or malformed id is a 404."""
    problem(get_status(foreign(job_id)), 404, "not_found")


def test_job_of_other_owner(job_id: str) -> None:
    """Another owner's job is the same 404 as an unknown one."""
    assert get_status(job_id, owner="ben").json == get_status(ids.new("job"), owner="ben").json


def test_scope(job_id: str) -> None:
    """Reading needs the scope to read."""
    problem(get_status(job_id, scopes="jobs:write"), 403, "forbidden")


def test_history_is_cached(store: JobStore, job_id: str, clock: FakeClock) -> None:
    """The owner's durations determine the estimate, and are read again after a minute."""
    assert get_status(job_id).json["expected_completion"] is None
    ended = job(status="completed", finished_at=events.timestamp(NOW + 600))
    for _ in range(5):
        store.durations.record(ended)
    clock.now += HISTORY_SECONDS - 1
    assert get_status(job_id).json["expected_completion"] is None
    clock.now += 2
    seen = get_status(job_id)
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
    return [json.loads(each.body) for each in store.log.read(job_id)]


def test_events(store: JobStore, job_id: str, clock: FakeClock) -> None:
    """The log is returned as it was stored, after any sequence, without a wait."""
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
def test_invalid_after(job_id: str, after: str, accept: str) -> None:
    """`after` must be a number of at least 0."""
    answer = log_of(job_id, accept, query={"after": after})
    assert problem(answer, 422, "invalid_request")["field"] == "after"


@pytest.mark.parametrize("accept", ["text/event-stream", "Text/Event-Stream", "text/event-stream, */*;q=0.1"])
def test_stream(store: JobStore, job_id: str, clock: FakeClock, accept: str) -> None:
    """With `Accept: text/event-stream`, events have their sequences as ids, and a retry time."""
    store.apply(job_id, begin(DOCUMENT, stage="validate", lease="x"))
    answer = log_of(job_id, accept)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    names = sse.parse(answer.body)
    assert [json.loads(each.data) for each in names.events] == stored(store, job_id)
    assert [(each.type, each.last_event_id) for each in names.events] == [
        ("document.uploaded", "1"),
        ("document.started", "2"),
    ]
    assert names.retry == 1000
    assert clock.sleeps == []


@pytest.mark.parametrize(
    ("options", "names"),
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
def test_start_of_stream(store: JobStore, job_id: str, options: dict[str, Any], names: list[str]) -> None:
    """A stream continues after the client's last event. An unknown id is ignored."""
    store.apply(job_id, begin(DOCUMENT, stage="validate", lease="x"))
    answer = log_of(job_id, "text/event-stream", **options)
    assert [each.last_event_id for each in sse.parse(answer.body).events] == names


def test_stream_waits(store: JobStore, job_id: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream waits for the next event."""

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if len(clock.sleeps) == 3:
            store.apply(job_id, begin(DOCUMENT, stage="validate", lease="x"))

    monkeypatch.setattr(time, "sleep", sleep)
    answer = log_of(job_id, "text/event-stream", headers={"Last-Event-ID": "1"})
    assert [each.type for each in sse.parse(answer.body).events] == ["document.started"]
    assert len(clock.sleeps) == 3


def test_stream_without_events(job_id: str, clock: FakeClock) -> None:
    """After the longest wait the stream ends without an event."""
    answer = log_of(job_id, "text/event-stream", headers={"Last-Event-ID": "1"})
    assert (answer.status, sse.parse(answer.body, last_event_id="1").last_event_id) == (200, "1")
    assert sse.parse(answer.body).events == []
    assert sum(clock.sleeps) == pytest.approx(25)


def test_end_of_stream(store: JobStore, job_id: str, clock: FakeClock) -> None:
    """After a job's last event comes `end`; a client that has the last event gets a 204."""
    store.apply(job_id, cancel)
    last = sse.parse(log_of(job_id, "text/event-stream").body).events[-1]
    assert (last.type, json.loads(last.data), last.last_event_id) == ("end", {"status": "canceled"}, "2")
    for known in ("2", "3"):
        over = log_of(job_id, "text/event-stream", headers={"Last-Event-ID": known})
        assert (over.status, over.body, over.headers["cache-control"]) == (204, "", "no-store")
    assert clock.sleeps == []


def test_stream_with_one_name(store: JobStore, job_id: str) -> None:
    """With `event=message` all events have this name; other names are refused."""
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
        names = sse.parse(answer.body).events
        assert [each.type for each in names] == ["message", "message"]
        assert [json.loads(each.data) for each in names] == stored(store, job_id)
    for name in ("", "end", "document.canceled"):
        refused = log_of(job_id, "text/event-stream", query={"event": name})
        assert problem(refused, 422, "invalid_request")["field"] == "event"


@pytest.mark.parametrize("foreign", [lambda job_id: ids.new("job"), lambda job_id: "job_1", str.lower])
def test_unknown_log(job_id: str, foreign: Callable[[str], str]) -> None:
    """An unknown or malformed id and another owner's job are the same 404."""
    unknown = log_of(foreign(job_id))
    problem(unknown, 404, "not_found")
    assert log_of(job_id, owner="ben").json == unknown.json
    problem(log_of(job_id, scopes="jobs:write"), 403, "forbidden")


# ── links ────────────────────────────────────────────────────────────────────────────────────────────────────


def follow(token: str, name: str = "status", **options: Any) -> Answer:
    return call(module.handler, "GET", f"/follow/{token}/{name}", owner=None, **options)


def token_of(store: JobStore, job_id: str, hours: int = 48) -> str:
    return links.make_token(store.get(job_id), now=time.time(), hours=hours)


@pytest.mark.parametrize("options", [{}, {"query": {"wait": "3"}}, {"headers": {"Prefer": "wait=3"}}])
def test_status_by_link(store: JobStore, job_id: str, clock: FakeClock, options: dict[str, Any]) -> None:
    """A link returns the same status as a key, with ETag and wait."""
    linked, owned = follow(token_of(store, job_id), **options), get_status(job_id, **options)
    assert (linked.status, linked.json) == (200, owned.json)
    for each in (linked, owned):
        each.headers.pop("retry-after")  # grows with the age of the job between the two requests
    assert linked.headers == owned.headers
    known = {"If-None-Match": linked.headers["etag"]}
    assert follow(token_of(store, job_id), headers=known).status == 304


@pytest.mark.parametrize("accept", ["", "text/event-stream"])
def test_events_by_link(store: JobStore, job_id: str, accept: str) -> None:
    """A link returns the same events as a key, as JSON and as a stream."""
    store.apply(job_id, cancel)
    for options in ({}, {"query": {"after": "1"}}, {"headers": {"Last-Event-ID": "2"}}):
        sent = {"Accept": accept} | options.get("headers", {})
        query = options.get("query")
        linked = follow(token_of(store, job_id), "events", headers=sent, query=query)
        assert linked == log_of(job_id, headers=sent, query=query)


def test_invalid_links(store: JobStore, job_id: str) -> None:
    """Tokens that are forged, expired, another job's, of no job or malformed are the same 403."""
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
