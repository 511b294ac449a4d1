"""Waiting and watching, in every way and whatever breaks."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recado import AsyncRecado, Recado, _api, _following, _io, _live
from recado.cost import poll_with_backoff
from recado.errors import ConnectionFailed, NotFound, TimeUp, Unauthorized
from recado.models import JobCanceled, JobFailed
from tests.unit.client.service import FINAL, JOB_ID, OPEN, Service, payload, payloads

pytestmark = [pytest.mark.enable_socket, pytest.mark.usefixtures("quick")]
WAYS = _following.WAYS
KEY = "rk_test"


@pytest.fixture
def client(service: Service) -> Any:
    with Recado(service.url, KEY, timeout=5) as client:
        yield client


def numbers(client: Recado, **options: Any) -> list[int]:
    return [event.sequence for event in client.watch(JOB_ID, **options)]


@pytest.mark.parametrize("way", WAYS)
def test_a_finished_job_is_told_whole(client: Recado, service: Service, way: Any) -> None:
    """Watching a job that is over gives its whole log and ends."""
    assert [event.raw for event in client.watch(JOB_ID, transport=way)] == service.log


@pytest.mark.parametrize("way", WAYS)
def test_watching_begins_where_one_left_off(client: Recado, way: Any) -> None:
    """`after` leaves out what was seen before, up to all of it."""
    assert numbers(client, transport=way, after=5) == [6, 7, 8]
    assert numbers(client, transport=way, after=8) == []


@pytest.mark.parametrize("way", WAYS)
def test_events_come_while_they_happen(client: Recado, service: Service, way: Any) -> None:
    """Each event is there before the next one has happened."""
    log, service.log, service.hold, service.retry_after = service.log, [], 5, "0"
    service.append(log[0])
    seen = []
    for event in client.watch(JOB_ID, transport=way):
        seen.append(event.raw)
        assert service.log == seen
        if len(seen) < len(log):
            service.append(log[len(seen)])
    assert seen == log


@pytest.mark.parametrize("way", WAYS)
def test_asyncio_sees_the_same(service: Service, way: Any) -> None:
    """The client for asyncio gives the same events in the same order."""

    async def watch() -> list[Any]:
        async with AsyncRecado(service.url, KEY) as client:
            return [event.raw async for event in client.watch(JOB_ID, transport=way)]

    assert asyncio.run(watch()) == service.log


VERBS = st.sampled_from(["started", "completed", "failed", "canceled", "indexed", "retried", "simmered"])


@st.composite
def logs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Of any kind: verbs say nothing, and a job may be queued again and again; the last event alone is final."""
    steps = draw(st.lists(st.tuples(VERBS, st.sampled_from(OPEN)), min_size=1, max_size=11))
    steps.append(draw(st.tuples(VERBS, st.sampled_from(FINAL))))
    return [payload(number, verb, status=status) for number, (verb, status) in enumerate(steps, 1)]


@st.composite
def troubles(draw: st.DrawFn) -> dict[str, Any]:
    """A log, how much of it is there at first, how it is told, and what goes wrong with which connection."""
    log = draw(logs())
    count = len(log)
    return {
        "log": log,
        "tells_status": draw(st.booleans()),
        "is_named": draw(st.booleans()),
        "first": draw(st.integers(1, count)),
        "after": draw(st.integers(0, count)),
        "cuts": draw(st.lists(st.none() | st.integers(0, 900), max_size=8)),
        "repeats": draw(st.integers(0, 2)),
        "skips": draw(st.sets(st.integers(1, count - 1), max_size=3)),
        "pack": draw(st.integers(1, 5)),
        "too_large": draw(st.sets(st.integers(1, count), max_size=2)),
    }


@pytest.mark.parametrize("asynchronous", [False, True], ids=["blocking", "asyncio"])
@pytest.mark.parametrize("way", ["auto", *WAYS])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trouble=troubles())
def test_nothing_is_lost_and_nothing_comes_twice(
    service: Service, monkeypatch: pytest.MonkeyPatch, way: Any, asynchronous: bool, trouble: dict[str, Any]
) -> None:
    """Connections cut at any byte, repeated, skipped, packed and cut down pushes: each event once and in order."""
    monkeypatch.setattr(_following, "GAP_SECONDS", 0.0)
    log = trouble["log"]
    service.reset(
        log[: trouble["first"]],
        hold=0.05,
        retry_after="0",
        cuts=deque([None, *trouble["cuts"]]),
        **{name: trouble[name] for name in ("repeats", "pack", "tells_status", "is_named")},
        **{name: set(trouble[name]) for name in ("skips", "too_large")},
    )
    writer = threading.Thread(target=write, args=(service, log[trouble["first"] :]))
    writer.start()
    watch = watch_asyncio if asynchronous else watch_blocking
    seen = watch(service.url, trouble["after"], way)
    writer.join()
    assert seen == service.told(log[trouble["after"] :])


def write(service: Service, events: list[dict[str, Any]]) -> None:
    for event in events:
        time.sleep(0.001)
        service.append(event)


def watch_blocking(url: str, after: int, way: Any) -> list[Any]:
    with Recado(url, KEY, timeout=5) as client:
        return [event.raw for event in client.watch(JOB_ID, after=after, transport=way, timeout=20)]


def watch_asyncio(url: str, after: int, way: Any) -> list[Any]:
    async def watch() -> list[Any]:
        async with AsyncRecado(url, KEY, timeout=5) as client:
            found = client.watch(JOB_ID, after=after, transport=way, timeout=20)
            return [event.raw async for event in found]

    return asyncio.run(watch())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ending", FINAL)
def test_the_end_needs_no_status_in_events(client: Recado, service: Service, way: Any, ending: str) -> None:
    """Events that were logged before they had a status are told to the end as well: the job is asked."""
    service.reset(payloads(4, ending=ending), tells_status=False)
    events = list(client.watch(JOB_ID, transport=way, timeout=5))
    assert [(event.sequence, event.status, event.is_final) for event in events] == [
        (number, "", False) for number in (1, 2, 3, 4)
    ]


def test_a_stream_may_have_no_end_of_its_own(client: Recado, service: Service) -> None:
    """The last event is the end of a stream, by its status: nobody comes back for an `end`."""
    service.is_named = False
    assert numbers(client, transport="sse") == [1, 2, 3, 4, 5, 6, 7, 8]
    assert paths(service) == ["", "/events"]


def test_repetitions_cost_nothing(client: Recado, service: Service) -> None:
    """What is pushed twice is dropped, and the connection goes on."""
    service.repeats, service.ways = 2, frozenset({"sse"})
    assert numbers(client) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert paths(service) == ["", "/events"]


def test_a_stream_goes_on_where_it_broke(client: Recado, service: Service) -> None:
    """A stream that comes back names the event that was seen last, so nothing is sent again."""
    service.ways, service.cuts = frozenset({"sse"}), deque([None, 700])
    assert numbers(client) == [1, 2, 3, 4, 5, 6, 7, 8]
    first, second = service.headers[1:]
    assert "last-event-id" not in first
    assert 1 <= int(second["last-event-id"]) <= 4


def test_a_line_that_always_breaks_but_carries_on(client: Recado, service: Service) -> None:
    """A way that brings something now and then is never given up, however often it breaks."""
    service.reset(payloads(40), ways=frozenset({"sse"}), cuts=deque([None, *[350, 0] * 40]))
    assert numbers(client, transport="sse") == list(range(1, 41))
    assert len(service.requests) > 2 * _following.PATIENCE


# ── wait ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("way", ["auto", *WAYS])
def test_waiting_ends_with_the_job(client: Recado, service: Service, way: Any) -> None:
    """`wait` returns the whole job as soon as it has ended."""
    *before, last = service.log
    service.reset(before, hold=5, retry_after="0")
    timer = threading.Timer(0.1, service.append, [last])
    timer.start()
    began = time.monotonic()
    job = client.wait(JOB_ID, transport=way)
    assert (job.status, job.sequence) == ("completed", 8)
    assert time.monotonic() - began < 3
    timer.join()


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(log=logs(), way=st.sampled_from(["auto", *WAYS]), tells_status=st.booleans())
def test_waiting_ends_by_the_status(
    client: Recado, service: Service, log: list[dict[str, Any]], way: Any, tells_status: bool
) -> None:
    """Whatever its events are called, `wait` returns with the status of the last one, and not before."""
    service.reset(log[:1], hold=0.05, retry_after="0", tells_status=tells_status)
    writer = threading.Thread(target=write, args=(service, log[1:]))
    writer.start()
    job = client.wait(JOB_ID, transport=way, check=False, timeout=20)
    writer.join()
    assert (job.status, job.sequence) == (log[-1]["status"], len(log))


def test_a_finished_job_costs_one_request(client: Recado, service: Service) -> None:
    """Who waits for what is over has asked once."""
    assert client.wait(JOB_ID).status == "completed"
    assert service.requests == [f"GET /v1/jobs/{JOB_ID}"]


def test_a_stream_may_end_too_early(client: Recado, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a stream says that the job has ended and the job says otherwise, the job is right."""
    monkeypatch.setattr(_api, "SECOND_LOOK_SECONDS", 0.01)
    views = iter([{**service.view(), "status": "running"}] * 3)
    final = service.view()
    monkeypatch.setattr(service, "view", lambda: next(views, final))
    assert client.wait(JOB_ID, transport="sse").status == "completed"
    assert paths(service) == ["", *["/events", ""] * 3]


def test_a_failed_job_is_an_error(client: Recado, service: Service) -> None:
    """The error says why, in words for people and for programs."""
    service.reset(payloads(3, ending="failed"))
    with pytest.raises(JobFailed, match=r"failed in stage validate \(no_text\): It is a scan\.") as caught:
        client.wait(JOB_ID)
    assert (caught.value.code, caught.value.stage) == ("no_text", "validate")
    assert caught.value.job.status == "failed"


def test_a_canceled_job_is_an_error(client: Recado, service: Service) -> None:
    """Nobody takes a canceled job for a completed one."""
    service.reset(payloads(3, ending="canceled"))
    with pytest.raises(JobCanceled):
        client.wait(JOB_ID)


def test_errors_can_be_looked_at_instead(client: Recado, service: Service) -> None:
    """With `check=False` the job is returned, however it ended."""
    service.reset(payloads(3, ending="failed"))
    assert client.wait(JOB_ID, check=False).status == "failed"


@pytest.mark.parametrize("way", WAYS)
def test_patience_has_an_end(client: Recado, service: Service, way: Any) -> None:
    """After `timeout` seconds TimeUp is raised, in every way of waiting."""
    service.reset(payloads(8)[:3], hold=30)
    began = time.monotonic()
    with pytest.raises(TimeUp):
        client.wait(JOB_ID, timeout=0.3, transport=way)
    assert 0.25 < time.monotonic() - began < 2


def test_blocking_calls_need_no_thread_without_a_loop(client: Recado) -> None:
    """The blocking client works in a thread in which a loop runs, such as a notebook's."""

    async def main() -> str:
        return client.wait(JOB_ID).status

    assert asyncio.run(main()) == "completed"


# ── which way ────────────────────────────────────────────────────────────────────────────────────────────


def paths(service: Service) -> list[str]:
    return [line.removeprefix(f"GET /v1/jobs/{JOB_ID}") for line in service.requests]


def test_a_websocket_is_preferred(client: Recado, service: Service) -> None:
    """Where the job has a `live` link, one connection carries everything."""
    numbers(client)
    assert paths(service) == ["", "WS"]


def test_without_a_link_events_are_streamed(client: Recado, service: Service) -> None:
    """Without a `live` link, server-sent events are next."""
    service.ways -= {"websocket"}
    numbers(client)
    assert paths(service) == ["", "/events"]


def test_without_the_extra_events_are_streamed(
    client: Recado, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So they are where `websockets` is not installed."""
    monkeypatch.setattr(_io, "HAS_WEBSOCKETS", False)
    numbers(client)
    assert paths(service) == ["", "/events"]


def test_without_streams_polls_are_held(client: Recado, service: Service) -> None:
    """Where streams are not to be had, long polls are next."""
    service.ways = frozenset({"long_poll"})
    assert numbers(client) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert paths(service) == ["", "/events", "/events", "/status?wait=25", "/events?after=0"]


def test_without_anything_there_are_polls(client: Recado, service: Service) -> None:
    """Where nothing is held, it is asked when Retry-After says so."""
    log = service.log
    service.reset(log[:3], ways=frozenset(), retry_after="0")
    timer = threading.Timer(0.5, service.append, log[3:])
    timer.start()
    assert numbers(client) == [1, 2, 3, 4, 5, 6, 7, 8]
    timer.join()
    assert paths(service)[-2:] == ["/status", "/events?after=3"]


def test_a_websocket_that_refuses_is_left(client: Recado, service: Service) -> None:
    """Where the socket closes at once the link is fetched anew, and then the next way is taken."""
    live, service.live = service.live, service.live.replace("token=t", "token=expired")
    try:
        assert numbers(client) == [1, 2, 3, 4, 5, 6, 7, 8]
    finally:
        service.live = live
    assert paths(service) == ["", "WS", "", "WS", "/events"]


def test_an_expired_link_is_made_anew(service: Service) -> None:
    """A job that was fetched long ago has an old link; it is asked for once more."""
    with Recado(service.url, KEY) as client:
        job = client.job(JOB_ID)
        object.__setattr__(job, "links", {"live": service.live.replace("token=t", "token=expired")})
        assert len(list(client.watch(job, transport="websocket"))) == 8
    assert paths(service) == ["", "WS", "", "WS"]


def test_hopeless_answers_end_it(client: Recado, service: Service) -> None:
    """What will not get better is not asked for again and again."""
    with pytest.raises(NotFound, match="There is no such job"):
        client.wait("job_other")
    with Recado(service.url, "rk_wrong") as stranger, pytest.raises(Unauthorized):
        stranger.wait(JOB_ID)
    assert len(service.requests) == 2


def test_each_way_is_refused_once(client: Recado, service: Service) -> None:
    """Where every way says that the key is wrong, each is tried once, and the last answer is the error."""
    service.ways -= {"websocket"}
    job = client.job(JOB_ID)
    with Recado(service.url, "rk_wrong") as stranger, pytest.raises(Unauthorized):
        list(stranger.watch(job))
    assert paths(service)[1:] == ["/events", "/status?wait=25", "/status"]


def test_a_dead_service_ends_it(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every connection breaks, patience has an end, and the reason is told."""
    monkeypatch.setattr(_io.BlockingIO, "clock", lambda _: 0.0)  # a slow machine's second is not a quiet one
    with Recado(service.url, KEY, retries=0) as client:
        job = client.job(JOB_ID)
        service.cuts = deque([0] * 99)
        service.ways -= {"websocket"}
        with pytest.raises(ConnectionFailed):
            list(client.watch(job, transport="sse"))
    assert len(service.requests) == 1 + _following.PATIENCE


def test_the_loop_follows_a_link(client: Recado, service: Service) -> None:
    """`poll_with_backoff` needs the job's `status` link and no key."""
    *before, last = service.log
    service.reset(before)
    link = client.job(JOB_ID).links["status"]
    timer = threading.Timer(0.1, service.append, [last])
    timer.start()
    assert poll_with_backoff(link, base=0.05, cap=0.1)["status"] == "completed"
    timer.join()


# ── WebSocket ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_lost_push_is_asked_for(client: Recado, service: Service) -> None:
    """An event that never came is replayed as soon as a later one shows the gap."""
    log = service.log
    service.reset(log[:2], skips={4})
    timer = threading.Timer(0.1, service.append, log[2:])
    timer.start()
    assert numbers(client, transport="websocket") == [1, 2, 3, 4, 5, 6, 7, 8]
    timer.join()
    assert service.heard == [{"action": "subscribe", "job_id": JOB_ID, "after": 3}]


def test_silence_is_pinged_into(client: Recado, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quiet line is tested with pings, and now and then a replay is asked for in case that a push was lost."""
    monkeypatch.setattr(_live, "PING_SECONDS", 0.02)
    monkeypatch.setattr(_live, "SILENCES_PER_REPLAY", 3)
    *before, last = service.log
    service.reset(before)
    timer = threading.Timer(0.3, service.append, [last])
    timer.start()
    assert numbers(client, transport="websocket") == [1, 2, 3, 4, 5, 6, 7, 8]
    timer.join()
    assert service.heard[:3] == [
        {"action": "ping"},
        {"action": "ping"},
        {"action": "subscribe", "job_id": JOB_ID, "after": 7},
    ]


@pytest.mark.parametrize(("tells_status", "asks"), [(True, False), (False, True)])
def test_the_status_is_asked_only_where_it_is_not_said(
    client: Recado, service: Service, tells_status: bool, asks: bool
) -> None:
    """An event with a status leaves no question, whatever its verb; without one, the job is asked."""
    log = [*payloads(8)[:2], payload(3, "completed", status="queued"), payload(4, "simmered", status="completed")]
    service.reset(log[:3], tells_status=tells_status)
    timer = threading.Timer(0.1, service.append, [log[3]])
    timer.start()
    assert numbers(client, transport="websocket") == [1, 2, 3, 4]
    timer.join()
    assert paths(service)[:2] == ["", "WS"]
    assert set(paths(service)[2:]) == ({"/status"} if asks else set())


def test_the_last_event_may_come_after_the_status(
    client: Recado, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is final by its status has not been told whole before its last event has come."""
    log = payloads(4)
    service.reset(log[:3], tells_status=False)
    view = {**service.view(), "status": "completed", "sequence": 4}
    job = client.job(JOB_ID)
    monkeypatch.setattr(service, "view", lambda: view)
    timer = threading.Timer(0.1, service.append, [log[3]])
    timer.start()
    seen = [event.sequence for event in client.watch(job, transport="websocket")]
    timer.join()
    assert seen == [1, 2, 3, 4]


def write_when(service: Service, is_time: Callable[[], bool], event: dict[str, Any]) -> None:
    end = time.monotonic() + 20
    while not is_time() and time.monotonic() < end:
        time.sleep(0.01)
    service.append(event)


def test_a_line_that_is_quiet_and_ends_has_worked(
    client: Recado, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections end after two hours at most: one that was held till then is made again, not given up."""
    monkeypatch.setattr(_live, "PING_SECONDS", 0.04)
    *before, last = service.log
    subscribed = len(json.dumps({"type": "subscribed", "job_id": JOB_ID, "sequence": len(before)})) + 2
    breaks = 2 * _following.PATIENCE_WITH_NEW
    service.reset(before, cuts=deque([None, *[subscribed + 20, None] * breaks]))
    writer = threading.Thread(
        target=write_when, args=(service, lambda: service.requests.count("WS") > breaks, last)
    )
    writer.start()
    assert client.wait(JOB_ID).status == "completed"
    writer.join()
    assert "/events" not in paths(service)
