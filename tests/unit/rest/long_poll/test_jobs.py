"""A job's status and events (rest.long_poll.jobs)."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

import pytest

from core import events
from core.jobs import History, JobStore, begin, cancel, links
from kinds.document.kind import DOCUMENT
from rest.long_poll import handler as module
from rest.long_poll import jobs
from rest.long_poll.jobs import HISTORY_SECONDS
from tests.support import sse
from tests.unit.examples import NOW, FakeClock, job
from tests.unit.http_calls import Answer, call, problem


def get_status(job_id: str, **options: Any) -> Answer:
    return call(module.handler, "GET", f"/jobs/{job_id}/status", **options)


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
        call(
            module.handler,
            "GET",
            f"/follow/{links.make_token(store.get(job_id), now=time.time(), hours=48)}/events",
            owner=None,
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
