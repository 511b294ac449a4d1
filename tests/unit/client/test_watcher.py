"""Watching and waiting for one job, over every transport and with every failure."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recado import Recado, _api, _io, _watcher, _websocket
from recado.errors import ConnectionFailed, Unauthorized, WaitTimeout
from recado.models import JobFailed
from recado.polling import poll_with_backoff
from tests.unit.client.stub_service import (
    FINAL,
    JOB_ID,
    KEY,
    OPEN,
    Payload,
    StubService,
    collect,
    payload,
    payloads,
)

pytestmark = [pytest.mark.enable_socket, pytest.mark.usefixtures("short_delays")]
TRANSPORTS = _watcher.TRANSPORTS


@pytest.fixture
def client(service: StubService) -> Iterator[Recado]:
    with Recado(service.url, KEY, timeout=5) as client:
        yield client


def sequences(client: Recado, **options: Any) -> list[int]:
    return [event.sequence for event in client.watch(JOB_ID, **options)]


def paths(service: StubService) -> list[str]:
    return [line.removeprefix(f"GET /v1/jobs/{JOB_ID}") for line in service.requests]


# ── watch ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_events_are_yielded_as_they_happen(client: Recado, service: StubService, transport: Any) -> None:
    """Each event is yielded before the next one has happened."""
    log, service.log, service.hold_seconds, service.retry_after = service.log, [], 5, "0"
    service.append(log[0])
    yielded = []
    for event in client.watch(JOB_ID, transport=transport):
        yielded.append(event.raw)
        assert service.log == yielded
        if len(yielded) < len(log):
            service.append(log[len(yielded)])
    assert yielded == log


VERBS = st.sampled_from(["started", "completed", "failed", "canceled", "indexed", "retried", "simmered"])


@st.composite
def logs(draw: st.DrawFn) -> list[Payload]:
    """Of any kind: verbs mean nothing, a job may be queued again, and only the last event is final."""
    steps = draw(st.lists(st.tuples(VERBS, st.sampled_from(OPEN)), min_size=1, max_size=11))
    steps.append(draw(st.tuples(VERBS, st.sampled_from(FINAL))))
    return [payload(number, verb, status=status) for number, (verb, status) in enumerate(steps, 1)]


@st.composite
def failures(draw: st.DrawFn) -> dict[str, Any]:
    """A log, how much of it exists at first, how the service sends it, and which connections fail."""
    log = draw(logs())
    count = len(log)
    return {
        "log": log,
        "first": draw(st.integers(1, count)),
        "after": draw(st.integers(0, count)),
        "cuts": draw(st.lists(st.none() | st.integers(0, 900), max_size=8)),
        "service": {
            "sends_status": draw(st.booleans()),
            "names_events": draw(st.booleans()),
            "repeats": draw(st.integers(0, 2)),
            "skips": draw(st.sets(st.integers(1, count - 1), max_size=3)),
            "batch_size": draw(st.integers(1, 5)),
            "truncated": draw(st.sets(st.integers(1, count), max_size=2)),
        },
    }


@pytest.mark.parametrize("transport", ["auto", *TRANSPORTS])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=failures())
def test_each_event_is_yielded_once_and_in_order(
    service: StubService, monkeypatch: pytest.MonkeyPatch, transport: Any, asynchronous: bool, case: dict[str, Any]
) -> None:
    """Connections break at any byte, and events are repeated, skipped, batched and truncated."""
    monkeypatch.setattr(_watcher, "MIN_SESSION_SECONDS", 0.0)
    log, first, after = case["log"], case["first"], case["after"]
    options = {name: set(value) if isinstance(value, set) else value for name, value in case["service"].items()}
    cuts = deque([None, *case["cuts"]])
    service.reset(log[:first], hold_seconds=0.05, retry_after="0", cuts=cuts, **options)
    writer = threading.Thread(target=append_slowly, args=(service, log[first:]))
    writer.start()
    yielded = collect(
        service,
        lambda client: client.watch(JOB_ID, after=after, transport=transport, timeout=20),
        asynchronous=asynchronous,
    )
    writer.join()
    assert [event.raw for event in yielded] == service.as_sent(log[after:])


def append_slowly(service: StubService, events: list[Payload]) -> None:
    for event in events:
        time.sleep(0.001)
        service.append(event)


def test_the_final_event_ends_an_sse_stream(client: Recado, service: StubService) -> None:
    """The client does not wait for an `end` after it."""
    service.names_events = False
    assert sequences(client, transport="sse") == [1, 2, 3, 4, 5, 6, 7, 8]
    assert paths(service) == ["", "/events"]


def test_repeated_events_do_not_end_the_connection(client: Recado, service: StubService) -> None:
    """Repetitions are dropped, and the connection continues."""
    service.repeats, service.transports = 2, frozenset({"sse"})
    assert sequences(client) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert paths(service) == ["", "/events"]


def test_an_sse_stream_continues_after_a_cut(client: Recado, service: StubService) -> None:
    """The new request has the Last-Event-ID, so that no event is sent again."""
    service.transports, service.cuts = frozenset({"sse"}), deque([None, 700])
    assert sequences(client) == [1, 2, 3, 4, 5, 6, 7, 8]
    first, second = service.headers[1:]
    assert "last-event-id" not in first
    assert 1 <= int(second["last-event-id"]) <= 4


@pytest.mark.parametrize("transport", ["sse", "long_poll"])
def test_requests_that_are_not_held_become_polls(
    client: Recado, service: StubService, monkeypatch: pytest.MonkeyPatch, transport: Any
) -> None:
    """Beyond the service's limit of held requests, the client asks again when Retry-After says, and goes on."""
    monkeypatch.setattr(_watcher, "retry_after", lambda response: 0.1 if "retry-after" in response.headers else 0)
    log = service.log
    service.reset(log[:2], is_full=True, retry_after="5")
    with service.append_later(1.2, *log[2:]):
        assert sequences(client, transport=transport) == [1, 2, 3, 4, 5, 6, 7, 8]
    asked = [path for path in paths(service) if path.endswith(("/events", "?wait=25"))]
    assert _watcher.MAX_FAILURES < len(asked) <= 16


def test_a_change_does_not_wait_for_retry_after(client: Recado, service: StubService) -> None:
    """After a long poll that returned a change, the client asks again at once, whatever Retry-After says."""
    log = service.log
    service.reset(log[:2], hold_seconds=5, retry_after="30")
    began = time.monotonic()
    with service.append_later(0.1, *log[2:]):
        assert sequences(client, transport="long_poll") == [1, 2, 3, 4, 5, 6, 7, 8]
    assert time.monotonic() - began < 10


def test_a_transport_with_updates_is_never_given_up(client: Recado, service: StubService) -> None:
    """However often connections break, the transport is kept if some of them bring an event."""
    service.reset(payloads(40), transports=frozenset({"sse"}), cuts=deque([None, *[350, 0] * 40]))
    assert sequences(client, transport="sse") == list(range(1, 41))
    assert len(service.requests) > 2 * _watcher.MAX_FAILURES


# ── wait ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("transport", ["auto", *TRANSPORTS])
def test_wait_returns_at_once_after_the_end(client: Recado, service: StubService, transport: Any) -> None:
    """`wait` returns the job as soon as it has ended."""
    *before, last = service.log
    service.reset(before, hold_seconds=5, retry_after="0")
    began = time.monotonic()
    with service.append_later(0.1, last):
        job = client.wait(JOB_ID, transport=transport)
    assert (job.status, job.sequence) == ("completed", 8)
    assert time.monotonic() - began < 3


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(log=logs(), transport=st.sampled_from(["auto", *TRANSPORTS]), sends_status=st.booleans())
def test_wait_ends_by_the_status(
    client: Recado, service: StubService, log: list[Payload], transport: Any, sends_status: bool
) -> None:
    """Whatever the verbs of the events are, `wait` returns when the status is final, and not before."""
    service.reset(log[:1], hold_seconds=0.05, retry_after="0", sends_status=sends_status)
    writer = threading.Thread(target=append_slowly, args=(service, log[1:]))
    writer.start()
    job = client.wait(JOB_ID, transport=transport, check=False, timeout=20)
    writer.join()
    assert (job.status, job.sequence) == (log[-1]["status"], len(log))


def test_waiting_for_an_ended_job_costs_one_request(client: Recado, service: StubService) -> None:
    """The status of the job is enough."""
    assert client.wait(JOB_ID).status == "completed"
    assert service.requests == [f"GET /v1/jobs/{JOB_ID}"]


def test_wait_continues_if_the_end_was_reported_too_early(
    client: Recado, service: StubService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a stream ends and the job is still running, the job is right."""
    monkeypatch.setattr(_api, "RECHECK_SECONDS", 0.01)
    views = iter([{**service.view(), "status": "running"}] * 3)
    final = service.view()
    monkeypatch.setattr(service, "view", lambda: next(views, final))
    assert client.wait(JOB_ID, transport="sse").status == "completed"
    assert paths(service) == ["", *["/events", ""] * 3]


def test_wait_raises_the_failure_of_a_job(client: Recado, service: StubService) -> None:
    """The error has the message, the code and the stage."""
    service.reset(payloads(3, ending="failed"))
    with pytest.raises(JobFailed, match=r"failed in stage validate \(no_text\): It is a scan\.") as caught:
        client.wait(JOB_ID)
    assert (caught.value.code, caught.value.stage) == ("no_text", "validate")
    assert caught.value.job.status == "failed"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_wait_raises_after_the_timeout(client: Recado, service: StubService, transport: Any) -> None:
    """WaitTimeout is raised after `timeout` seconds with every transport."""
    service.reset(payloads(8)[:3], hold_seconds=30)
    began = time.monotonic()
    with pytest.raises(WaitTimeout, match="The job continues"):
        client.wait(JOB_ID, timeout=0.3, transport=transport)
    assert 0.25 < time.monotonic() - began < 2


def test_the_blocking_client_works_beside_an_event_loop(client: Recado) -> None:
    """It works in a thread that runs an event loop, such as a notebook's."""

    async def main() -> str:
        return client.wait(JOB_ID).status

    assert asyncio.run(main()) == "completed"


# ── transports ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("transports", "has_websockets", "requests"),
    [
        ({"websocket", "sse"}, True, ["", "WS"]),
        ({"websocket", "sse"}, False, ["", "/events"]),
        ({"sse"}, True, ["", "/events"]),
        ({"long_poll"}, True, ["", "/events", "/events", "/status?wait=25", "/events?after=0"]),
    ],
    ids=["websocket", "websocket without the extra", "sse", "long poll"],
)
def test_the_best_transport_that_works_is_used(
    client: Recado,
    service: StubService,
    monkeypatch: pytest.MonkeyPatch,
    transports: set[str],
    has_websockets: bool,
    requests: list[str],
) -> None:
    """The client uses a WebSocket, else server-sent events, else long polls."""
    monkeypatch.setattr(_io, "HAS_WEBSOCKETS", has_websockets)
    service.transports = frozenset(transports)
    assert sequences(client) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert paths(service) == requests


def test_polling_is_the_last_transport(client: Recado, service: StubService) -> None:
    """If the service holds no requests open, the client polls at the times that Retry-After says."""
    log = service.log
    service.reset(log[:3], transports=frozenset(), retry_after="0")
    with service.append_later(0.5, *log[3:]):
        assert sequences(client) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert paths(service)[-2:] == ["/status", "/events?after=3"]


def test_a_refused_websocket_is_given_up(client: Recado, service: StubService) -> None:
    """The link is renewed once, and then the next transport is used."""
    live, service.live = service.live, service.live.replace("token=t", "token=expired")
    try:
        assert sequences(client) == [1, 2, 3, 4, 5, 6, 7, 8]
    finally:
        service.live = live
    assert paths(service) == ["", "WS", "", "WS", "/events"]


def test_an_expired_live_link_is_renewed(service: StubService) -> None:
    """A job object that was fetched long ago has an expired link, so the job is fetched again."""
    with Recado(service.url, KEY) as client:
        job = client.job(JOB_ID)
        object.__setattr__(job, "links", {"live": service.live.replace("token=t", "token=expired")})
        assert len(list(client.watch(job, transport="websocket"))) == 8
    assert paths(service) == ["", "WS", "", "WS"]


def test_a_missing_live_link_is_an_error(client: Recado, service: StubService) -> None:
    """A service without WebSockets is reported if the WebSocket was chosen."""
    service.transports -= {"websocket"}
    with pytest.raises(ConnectionFailed, match="no WebSockets"):
        sequences(client, transport="websocket")


def test_each_transport_is_refused_once(client: Recado, service: StubService) -> None:
    """If all transports refuse the key, each is tried once, and the last error is raised."""
    service.transports -= {"websocket"}
    job = client.job(JOB_ID)
    with Recado(service.url, "rk_wrong") as stranger, pytest.raises(Unauthorized):
        list(stranger.watch(job))
    assert paths(service)[1:] == ["/events", "/status?wait=25", "/status"]


def test_an_unreachable_service_is_given_up(service: StubService, monkeypatch: pytest.MonkeyPatch) -> None:
    """If every connection breaks, the error is raised after a number of failures."""
    monkeypatch.setattr(_io.BlockingIO, "clock", lambda _: 0.0)  # on a slow machine a failure may take a second
    with Recado(service.url, KEY, retries=0) as client:
        job = client.job(JOB_ID)
        service.cuts = deque([0] * 99)
        service.transports -= {"websocket"}
        with pytest.raises(ConnectionFailed):
            list(client.watch(job, transport="sse"))
    assert len(service.requests) == 1 + _watcher.MAX_FAILURES


def test_poll_with_backoff_works_with_the_status_link(client: Recado, service: StubService) -> None:
    """`poll_with_backoff` needs the job's `status` link and no key."""
    *before, last = service.log
    service.reset(before)
    link = client.job(JOB_ID).links["status"]
    with service.append_later(0.1, last):
        assert poll_with_backoff(link, base=0.05, cap=0.1)["status"] == "completed"


# ── WebSocket ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_lost_event_is_replayed(client: Recado, service: StubService) -> None:
    """A replay is requested as soon as a later event shows the gap."""
    log = service.log
    service.reset(log[:2], skips={4})
    with service.append_later(0.1, *log[2:]):
        assert sequences(client, transport="websocket") == [1, 2, 3, 4, 5, 6, 7, 8]
    assert service.received == [{"action": "subscribe", "job_id": JOB_ID, "after": 3}]


@pytest.mark.parametrize(("sends_status", "is_requested"), [(True, False), (False, True)])
def test_the_status_is_requested_only_if_events_lack_it(
    client: Recado, service: StubService, sends_status: bool, is_requested: bool
) -> None:
    """An event with a status is enough, whatever its verb is."""
    log = [*payloads(8)[:2], payload(3, "completed", status="queued"), payload(4, "simmered", status="completed")]
    service.reset(log[:3], sends_status=sends_status)
    with service.append_later(0.1, log[3]):
        assert sequences(client, transport="websocket") == [1, 2, 3, 4]
    assert paths(service)[:2] == ["", "WS"]
    assert set(paths(service)[2:]) == ({"/status"} if is_requested else set())


def test_the_last_event_may_arrive_after_the_final_status(
    client: Recado, service: StubService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Watching does not end before the last event has arrived."""
    log = payloads(4)
    service.reset(log[:3], sends_status=False)
    view = {**service.view(), "status": "completed", "sequence": 4}
    job = client.job(JOB_ID)
    monkeypatch.setattr(service, "view", lambda: view)
    with service.append_later(0.1, log[3]):
        yielded = [event.sequence for event in client.watch(job, transport="websocket")]
    assert yielded == [1, 2, 3, 4]


def append_when(service: StubService, condition: Callable[[], bool], event: Payload) -> None:
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    service.append(event)


def test_a_websocket_that_was_held_open_is_reopened(
    client: Recado, service: StubService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """API Gateway ends connections after two hours. That is not a failure of the transport."""
    monkeypatch.setattr(_websocket, "PING_SECONDS", 0.04)
    *before, last = service.log
    subscribed = len(json.dumps({"type": "subscribed", "job_id": JOB_ID, "sequence": len(before)})) + 2
    breaks = 2 * _watcher.MAX_FAILURES_OF_UNTRIED
    service.reset(before, cuts=deque([None, *[subscribed + 20, None] * breaks]))
    writer = threading.Thread(
        target=append_when, args=(service, lambda: service.requests.count("WS") > breaks, last)
    )
    writer.start()
    assert client.wait(JOB_ID).status == "completed"
    writer.join()
    assert "/events" not in paths(service)
