"""Following all jobs of a kind."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado import AsyncRecado, Recado, _calls, _io, _live
from recado._calls import Calls, Timer
from recado._feed import Feed, Seen
from recado._io import Answer, Request
from recado.errors import ConnectionFailed, InvalidRequest, MissingExtra, NotFound, TimeUp, Unauthorized
from recado.models import JobEvent, JobStatus
from tests.unit.client.service import Service, packed, payload, without_status

KEY = "rk_test"
Payload = dict[str, Any]


@dataclass
class World:
    """A service and the way to it, without sockets and time: something happens whenever the client listens.

    `script`: what happens, one thing after the other, and then the time is up. `tells_status`: whether events say
    how the job stands; `statuses`: how it does, if it is not running. `refusals`: statuses of answers
    that are no good, in order; 0 for no answer, 200 for a good one. `early`: what overtakes the answer to
    `follow`.
    """

    script: deque[tuple[Any, ...]]
    tells_status: bool = True
    statuses: dict[str, str] = field(default_factory=dict)
    too_large: set[int] = field(default_factory=set)
    refusals: deque[int] = field(default_factory=deque)
    logs: dict[str, list[Payload]] = field(default_factory=lambda: defaultdict(list))
    first: dict[str, int] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    said: list[Payload] = field(default_factory=list)
    early: list[Payload] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    connections: int = 0
    now: float = 0.0
    _inbox: deque[Payload] = field(default_factory=deque)

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.pauses.append(seconds)

    async def send(self, request: Request) -> Answer:
        self.requests.append(f"{request.method} {request.url.removeprefix('https://host/v1')}")
        status = self.refusals.popleft() if self.refusals and self.connections else 200
        if status == 0:
            raise ConnectionFailed("it broke")
        if status != 200:
            return Answer(status, {}, b"{}")
        if request.method == "POST":
            return _json({"ticket": "t", "url": "wss://live?ticket=t", "expires_at": "2026-11-29T08:01:00Z"})
        if request.url.endswith("/status"):
            return _json(self._status(request.url.split("/")[-2]))
        job_id, _, after = request.url.removeprefix("https://host/v1/jobs/").partition("/events?after=")
        return _json({"events": self.logs[job_id][int(after) :]})

    def _status(self, job_id: str) -> Payload:
        status = self.statuses.get(job_id, "running")
        return {"job_id": job_id, "status": status, "stage": "", "sequence": len(self.logs[job_id])}

    def stream(self, request: Request) -> Any:
        raise NotImplementedError

    @asynccontextmanager
    async def socket(self, url: str) -> AsyncIterator[World]:
        self.connections += 1
        self._inbox.clear()
        yield self

    async def receive(self, seconds: float) -> str | None:
        while not self._inbox and self.script:
            self._happen(*self.script.popleft())
            self.now += 1
        if not self._inbox:
            self.now = 1e9
            return None
        message = self._inbox.popleft()
        for event in message.get("events", ()):
            self.first.setdefault(event["job_id"], event["sequence"])
        return json.dumps(message)

    async def send_text(self, text: str) -> None:
        message = json.loads(text)
        self.said.append(message)
        if message["action"] == "follow":
            self._inbox.extend(packed(self.early, 9, self.too_large))
            self._inbox.append({"type": "following", "kind": message["kind"]})

    def _happen(self, what: str, job_id: str = "", *facts: Any) -> None:
        match what:
            case "push":
                self._inbox.extend(packed(self._write(job_id, facts[0]), facts[1], self.too_large))
            case "skip":
                self._write(job_id, facts[0])
            case "again" if self.logs[job_id]:
                self._inbox.extend(packed(self.logs[job_id][-facts[0] :], 2, self.too_large))
            case "ping":
                self._inbox.append({"type": "ping"})
            case "cut":
                raise ConnectionFailed("cut")

    def _write(self, job_id: str, count: int) -> list[Payload]:
        log = self.logs[job_id]
        events = [payload(len(log) + number, "progressed", job_id) for number in range(1, count + 1)]
        events = events if self.tells_status else [without_status(event) for event in events]
        log += events
        return events


class Line(World):
    """The world as a socket: `send` of a text and `send` of a request have the same name."""

    async def send(self, request: Any) -> Any:
        return await (self.send_text(request) if isinstance(request, str) else super().send(request))


def _json(body: Any) -> Answer:
    return Answer(200, {}, json.dumps(body).encode())


def follow(world: Any, **options: Any) -> list[JobEvent]:
    """All that is told before the script ends."""
    seen: list[JobEvent] = []
    feed = Feed(Calls(world, "https://host/v1", KEY, 30, 4), "document", Timer(world, 1e8, "up"), **options)

    async def read() -> None:
        async for event in feed.events():
            seen.append(event)

    with suppress(TimeUp):
        _io.run(read())
    return seen


JOBS = st.sampled_from(["job_a", "job_b", "job_c"])
SCRIPTS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), JOBS, st.integers(1, 4), st.integers(1, 3)),
        st.tuples(st.just("skip"), JOBS, st.integers(1, 2)),
        st.tuples(st.just("again"), JOBS, st.integers(1, 4)),
        st.tuples(st.sampled_from(["cut", "ping"])),
    ),
    max_size=20,
)


@given(
    SCRIPTS,
    st.sets(st.integers(1, 8)),
    st.lists(st.sampled_from([200, 200, 0, 503, 429]), max_size=12),
    st.booleans(),
)
def test_each_event_is_told_once_and_in_order(
    script: Any, too_large: set[int], refusals: list[int], tells_status: bool
) -> None:
    """In any packing, repeated, lost, cut down, over lines that break: whole, once, in the order of its job."""
    settle = [("push", job_id, 1, 1) for job_id in ("job_a", "job_b", "job_c")]
    world = Line(deque([*script, *settle]), tells_status, {}, too_large, deque(refusals))
    seen = follow(world)
    for job_id, log in world.logs.items():
        told = [event.raw for event in seen if event.job_id == job_id]
        assert told == log[world.first[job_id] - 1 :]


def test_what_happened_in_between_is_caught_up() -> None:
    """After a break the log of each job that goes on is asked for, from where it was left; of no other job."""
    script: Any = [("push", "job_a", 2, 2), ("push", "job_b", 1, 1), ("cut",), ("skip", "job_a", 1), ("ping",)]
    world = Line(deque(script))
    world.logs["job_b"] = [payload(1, "progressed", "job_b")]
    world.script.insert(2, ("push", "job_c", 1, 1))
    seen = follow(world)
    assert world.requests == [
        "POST /live/tickets",
        "POST /live/tickets",
        "GET /jobs/job_a/events?after=2",
        "GET /jobs/job_b/events?after=2",
        "GET /jobs/job_c/events?after=1",
    ]
    assert [(event.job_id, event.sequence) for event in seen] == [
        ("job_a", 1),
        ("job_a", 2),
        ("job_b", 2),
        ("job_c", 1),
    ]


def test_events_may_come_before_the_answer() -> None:
    """An event that overtakes the answer to `follow` is told after it, even if the line breaks in between."""
    log = [payload(1, "progressed", "job_a"), payload(2, "progressed", "job_a")]
    world = Line(deque(), too_large={1}, refusals=deque([0]), early=log, logs=defaultdict(list, job_a=log))
    assert [event.raw for event in follow(world)] == log


def test_pauses_grow_only_while_nothing_works() -> None:
    """A connection that has lasted begins the count of failures anew: the pause after it is short."""
    world = Line(deque([("ping",), ("ping",), ("cut",)] * 30))
    follow(world)
    assert len(world.pauses) == 30
    assert max(world.pauses) <= 2 * _calls.BASE_SECONDS


def test_each_connection_is_told_of() -> None:
    """`on_connected` is called when events flow, at first and after each break."""
    calls: list[int] = []
    world = Line(deque([("ping",), ("cut",), ("ping",), ("cut",), ("ping",)]))
    follow(world, on_connected=lambda: calls.append(world.connections))
    assert calls == [1, 2, 3]
    assert world.said == [{"action": "follow", "kind": "document"}] * 3 + [{"action": "ping"}]


def test_a_job_that_is_no_more_ends_nothing() -> None:
    """A job whose log has expired is forgotten, and all others are followed on."""
    world = Line(deque([("push", "job_a", 1, 1), ("cut",), ("push", "job_b", 1, 1)]), refusals=deque([200, 404]))
    assert [event.job_id for event in follow(world)] == ["job_a", "job_b"]


@pytest.mark.parametrize(("status", "error"), [(401, Unauthorized), (404, NotFound)])
def test_a_refusal_ends_it(status: int, error: type[Exception]) -> None:
    """What will not get better, such as a key that was withdrawn, is an error and not asked for again."""
    world = Line(deque([("cut",)]), refusals=deque([status]))
    with pytest.raises(error):
        follow(world)
    assert world.requests == ["POST /live/tickets"] * 2


def test_a_service_that_was_never_there_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first connection patience has an end; after it, it has none."""
    never, later = Line(deque([("cut",)] * 20), refusals=deque()), Line(deque(), refusals=deque([0] * 50))
    monkeypatch.setattr(Line, "send_text", lambda self, text: _fail())
    with pytest.raises(ConnectionFailed):
        follow(never)
    assert never.connections == 8
    monkeypatch.undo()
    later.script.extend([("cut",), ("push", "job_a", 1, 1)])
    assert [event.job_id for event in follow(later)] == ["job_a"]
    assert later.requests == ["POST /live/tickets"] * 52


async def _fail() -> None:
    raise ConnectionFailed("refused")


def test_memory_is_bounded() -> None:
    """Of ten thousand jobs and one more the one is forgotten that was quiet for longest."""
    seen = Seen(limit=3)
    for job_id in ("a", "b", "c", "a", "d"):
        seen.take(JobEvent.of(payload(seen.sequence(job_id) + 1, "progressed", job_id)))
    assert sorted(seen.open_jobs()) == ["a", "c", "d"]


@pytest.mark.parametrize("verb", ["completed", "failed", "simmered"])
@pytest.mark.parametrize(
    ("status", "open_jobs"),
    [("completed", []), ("failed", []), ("canceled", []), ("running", ["a"]), ("queued", ["a"])],
)
def test_ended_jobs_are_not_asked_about(verb: str, status: str, open_jobs: list[str]) -> None:
    """A job that has ended, by its status, is not open, but its events are still recognised as repetitions."""
    seen, last = Seen(), JobEvent.of(payload(1, verb, "a", status=status))
    assert seen.take(last)
    assert not seen.take(last)
    assert seen.open_jobs() == open_jobs


def test_jobs_whose_events_have_no_status_are_asked_once() -> None:
    """A job whose last event has no status is asked for it after a break, and no more once it has ended."""
    script: Any = [("push", "job_a", 2, 2), ("push", "job_b", 1, 1), ("cut",), ("ping",), ("cut",), ("ping",)]
    world = Line(deque(script), tells_status=False, statuses={"job_a": "completed"})
    follow(world)
    asked = [line for line in world.requests if line.startswith("GET")]
    assert asked == [
        "GET /jobs/job_a/events?after=2",
        "GET /jobs/job_a/status",
        *["GET /jobs/job_b/events?after=1", "GET /jobs/job_b/status"] * 2,
    ]


def test_a_status_that_is_ahead_ends_nothing() -> None:
    """A job that has ended with an event that was not seen yet is still open: that event must not be lost."""
    seen = Seen()
    seen.take(JobEvent.of(without_status(payload(1, "started", "a"))))
    seen.end(JobStatus.of({"job_id": "a", "status": "completed", "stage": "", "sequence": 2}))
    assert seen.open_jobs() == ["a"]


# ── over sockets ─────────────────────────────────────────────────────────────────────────────────────────


def follow_blocking(service: Service, count: int, **options: Any) -> list[Any]:
    """So many events."""
    with Recado(service.url, KEY) as client:
        return [event.raw for event in islice(client.follow(timeout=10, **options), count)]


def follow_asyncio(service: Service, count: int, **options: Any) -> list[Any]:
    async def read() -> list[Any]:
        seen = []
        async with (
            AsyncRecado(service.url, KEY) as client,
            aclosing(client.follow(timeout=10, **options)) as events,
        ):
            async for event in events:
                seen.append(event.raw)
                if len(seen) == count:
                    break
        return seen

    return asyncio.run(read())


FOLLOW = pytest.mark.parametrize("follow", [follow_blocking, follow_asyncio])
EVENTS = [payload(number, "progressed", job_id) for job_id in ("job_a", "job_b") for number in (1, 2)]
FRAME = 4
"""Bytes of a WebSocket frame around a message of more than 125."""


@pytest.mark.enable_socket
@pytest.mark.usefixtures("quick")
@FOLLOW
def test_all_jobs_are_followed(service: Service, follow: Any) -> None:
    """Events of every job come over one connection, opened with a ticket; what is too large is fetched."""
    service.reset([], pack=2, repeats=1, too_large={2})
    assert follow(service, 4, on_connected=lambda: service.append(*EVENTS)) == EVENTS
    assert service.requests[:2] == ["POST /v1/live/tickets", "WS"]
    assert service.heard == [{"action": "follow", "kind": "document"}]
    assert service.tickets == set()


@pytest.mark.enable_socket
@pytest.mark.usefixtures("quick")
@FOLLOW
@pytest.mark.parametrize("events", [-1, 0, 1])
@pytest.mark.parametrize("more", [0, 1, 30])
def test_a_line_that_is_cut_is_made_anew(service: Service, follow: Any, events: int, more: int) -> None:
    """A connection that breaks is made anew with another ticket: what is half said is said again, or asked for."""
    first, second = EVENTS[:2]
    said = [{"type": "following", "kind": "document"}, {"type": "events", "events": [first]}]
    lengths = [len(json.dumps(said[0])) + 2, len(json.dumps(said[1])) + FRAME]
    service.reset([], cuts=deque([None, sum(lengths[: events + 1]) + more]))
    unsaid = iter([first, second])

    def say_one() -> None:
        for event in islice(unsaid, 1):
            service.append(event)

    def say_one_now_and_one_soon() -> None:
        say_one()
        threading.Timer(0.05, say_one).start()

    go_on = say_one if events == 0 else say_one_now_and_one_soon
    told = follow(service, 1 if events == 0 else 2, on_connected=go_on)
    # The job began in a message that was cut, and so is known only from its next event on.
    assert told == ([second] if events == 0 else [first, second])
    assert service.requests.count("POST /v1/live/tickets") == 2


@pytest.mark.enable_socket
def test_any_kind_can_be_followed(service: Service) -> None:
    """The kind is a name that the service knows; the client has no list of them."""
    service.reset([])
    assert follow_blocking(service, 1, kind="errand", on_connected=lambda: service.append(EVENTS[0])) == EVENTS[:1]
    assert service.heard == [{"action": "follow", "kind": "errand"}]


@pytest.mark.enable_socket
def test_an_unknown_kind_is_refused(service: Service) -> None:
    """A kind that there is not will not come about: the error is the service's, and nothing is tried again."""
    with Recado(service.url, KEY) as client, pytest.raises(InvalidRequest, match="choose from document"):
        next(client.follow("sonnet"))
    assert service.requests == ["POST /v1/live/tickets", "WS"]


@pytest.mark.enable_socket
def test_following_has_an_end_if_it_is_asked_for(service: Service) -> None:
    """After `timeout` seconds TimeUp is raised, though nothing has happened."""
    began = time.monotonic()
    with Recado(service.url, KEY) as client, pytest.raises(TimeUp):
        next(client.follow(timeout=0.2))
    assert 0.15 < time.monotonic() - began < 2


@pytest.mark.enable_socket
def test_a_silent_line_is_pinged_into(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is pinged into, and the answer keeps the line."""
    monkeypatch.setattr(_live, "PING_SECONDS", 0.1)
    timer = threading.Timer(0.15, service.append, EVENTS[:1])
    assert follow_blocking(service, 1, on_connected=timer.start) == EVENTS[:1]
    timer.join()
    assert {"action": "ping"} in service.heard
    assert service.requests == ["POST /v1/live/tickets", "WS"]


def test_following_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a library for WebSockets the error says how to install it, before anything is sent."""
    monkeypatch.setattr(_io, "HAS_WEBSOCKETS", False)
    with pytest.raises(MissingExtra, match=r"pip install 'recado\[live\]'"):
        follow(Line(deque()))
