"""The events of all jobs of a kind."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado import Recado, _io, _retry
from recado._coroutines import run
from recado._deadline import Deadline
from recado._event_stream import EventStream, SeenEvents
from recado._http import HttpApi
from recado._io import Request, Response
from recado.errors import ConnectionFailed, InvalidRequest, MissingExtra, NotFound, Unauthorized, WaitTimeout
from recado.models import JobEvent, JobStatus
from tests.unit.client.stub_service import (
    KEY,
    Payload,
    StubService,
    batches,
    collect,
    payload,
    without_status,
)


@dataclass
class Simulation:
    """A service and the IO to it, without sockets and time. A step of the script runs when the client receives.

    `script`: the steps; after the last one the timeout passes. `sends_status`: whether events have a status.
    `statuses`: of jobs that do not run. `truncated`: events that are truncated. `failures`: statuses of the HTTP
    responses after the first connection, 0 for no response, 200 for a success. `early`: events that are sent
    before the response to `follow`.
    """

    script: deque[tuple[Any, ...]]
    sends_status: bool = True
    statuses: dict[str, str] = field(default_factory=dict)
    truncated: set[int] = field(default_factory=set)
    failures: deque[int] = field(default_factory=deque)
    logs: dict[str, list[Payload]] = field(default_factory=lambda: defaultdict(list))
    early: list[Payload] = field(default_factory=list)
    refuses_websockets: bool = False
    first_sequences: dict[str, int] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    sent: list[Payload] = field(default_factory=list)
    """WebSocket messages from the client."""
    delays: list[float] = field(default_factory=list)
    connections: int = 0
    now: float = 0.0
    inbox: deque[Payload] = field(default_factory=deque)

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.delays.append(seconds)

    async def send(self, request: Request) -> Response:
        self.requests.append(f"{request.method} {request.url.removeprefix('https://host/v1')}")
        status = self.failures.popleft() if self.failures and self.connections else 200
        if status == 0:
            raise ConnectionFailed("cut")
        if status != 200:
            return Response(status, {}, b"{}")
        if request.method == "POST":
            return _json({"ticket": "t", "url": "wss://live?ticket=t", "expires_at": "2026-11-29T08:01:00Z"})
        if request.url.endswith("/status"):
            return _json(self._status(request.url.split("/")[-2]))
        job_id, _, after = request.url.removeprefix("https://host/v1/jobs/").partition("/events?after=")
        return _json({"events": self.logs[job_id][int(after) :]})

    def _status(self, job_id: str) -> Payload:
        status = self.statuses.get(job_id, "running")
        return {"job_id": job_id, "status": status, "stage": "", "sequence": len(self.logs[job_id])}

    @asynccontextmanager
    async def socket(self, url: str) -> AsyncIterator[SimulatedWebSocket]:
        self.connections += 1
        self.inbox.clear()
        if self.refuses_websockets:
            raise ConnectionFailed("refused")
        yield SimulatedWebSocket(self)

    def run_step(self, what: str, job_id: str = "", *options: Any) -> None:
        match what:
            case "push":
                self.inbox.extend(batches(self._append(job_id, options[0]), options[1], self.truncated))
            case "lose":
                self._append(job_id, options[0])
            case "repeat" if self.logs[job_id]:
                self.inbox.extend(batches(self.logs[job_id][-options[0] :], 2, self.truncated))
            case "ping":
                self.inbox.append({"type": "ping"})
            case "cut":
                raise ConnectionFailed("cut")

    def _append(self, job_id: str, count: int) -> list[Payload]:
        log = self.logs[job_id]
        events = [payload(len(log) + number, "progressed", job_id) for number in range(1, count + 1)]
        events = events if self.sends_status else [without_status(event) for event in events]
        log += events
        return events


@dataclass
class SimulatedWebSocket:
    simulation: Simulation

    async def receive(self, seconds: float) -> str | None:
        simulation = self.simulation
        while not simulation.inbox and simulation.script:
            simulation.run_step(*simulation.script.popleft())
            simulation.now += 1
        if not simulation.inbox:
            simulation.now = 1e9
            return None
        message = simulation.inbox.popleft()
        for event in message.get("events", ()):
            simulation.first_sequences.setdefault(event["job_id"], event["sequence"])
        return json.dumps(message)

    async def send(self, text: str) -> None:
        simulation, message = self.simulation, json.loads(text)
        simulation.sent.append(message)
        if message["action"] == "follow":
            simulation.inbox.extend(batches(simulation.early, 9, simulation.truncated))
            simulation.inbox.append({"type": "following", "kind": message["kind"]})


def _json(body: Any) -> Response:
    return Response(200, {}, json.dumps(body).encode())


def follow(simulation: Any, **options: Any) -> list[JobEvent]:
    """All events until the script has ended."""
    events: list[JobEvent] = []
    api = HttpApi(simulation, "https://host/v1", KEY, 30, 4)
    stream = EventStream(api, "document", Deadline(simulation, 1e8, "timeout"), **options)

    async def read() -> None:
        async for event in stream.events():
            events.append(event)

    with suppress(WaitTimeout):
        run(read())
    return events


JOBS = st.sampled_from(["job_a", "job_b", "job_c"])
SCRIPTS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), JOBS, st.integers(1, 4), st.integers(1, 3)),
        st.tuples(st.just("lose"), JOBS, st.integers(1, 2)),
        st.tuples(st.just("repeat"), JOBS, st.integers(1, 4)),
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
def test_each_event_is_yielded_once_and_in_order(
    script: Any, truncated: set[int], failures: list[int], sends_status: bool
) -> None:
    """Events are batched, repeated, lost and truncated, and connections and requests fail."""
    last = [("push", job_id, 1, 1) for job_id in ("job_a", "job_b", "job_c")]
    simulation = Simulation(deque([*script, *last]), sends_status, {}, truncated, deque(failures))
    yielded = follow(simulation)
    for job_id, log in simulation.logs.items():
        events = [event.raw for event in yielded if event.job_id == job_id]
        assert events == log[simulation.first_sequences[job_id] - 1 :]


def test_missed_events_are_fetched_after_a_break() -> None:
    """The log of each open job that was seen is requested from the last event that was seen."""
    script: Any = [
        ("push", "job_a", 2, 2),
        ("push", "job_b", 1, 1),
        ("push", "job_c", 1, 1),
        ("cut",),
        ("lose", "job_a", 1),
        ("ping",),
    ]
    simulation = Simulation(deque(script))
    simulation.logs["job_b"] = [payload(1, "progressed", "job_b")]
    yielded = follow(simulation)
    assert simulation.requests == [
        "POST /live/tickets",
        "POST /live/tickets",
        "GET /jobs/job_a/events?after=2",
        "GET /jobs/job_b/events?after=2",
        "GET /jobs/job_c/events?after=1",
    ]
    assert [(event.job_id, event.sequence) for event in yielded] == [
        ("job_a", 1),
        ("job_a", 2),
        ("job_b", 2),
        ("job_c", 1),
    ]


def test_events_may_arrive_before_the_response_to_follow() -> None:
    """Early events are yielded after the response, even if a request fails in between."""
    log = [payload(1, "progressed", "job_a"), payload(2, "progressed", "job_a")]
    logs = defaultdict(list, job_a=log)
    simulation = Simulation(deque(), truncated={1}, failures=deque([0]), early=log, logs=logs)
    assert [event.raw for event in follow(simulation)] == log


def test_delays_increase_only_while_connections_fail() -> None:
    """After a connection that lasted, the delay is short again."""
    simulation = Simulation(deque([("ping",), ("ping",), ("cut",)] * 30))
    follow(simulation)
    assert len(simulation.delays) == 30
    assert max(simulation.delays) <= 2 * _retry.BASE_SECONDS


def test_on_connected_is_called_after_each_connection() -> None:
    """The client sends `follow` again on each connection."""
    calls: list[int] = []
    simulation = Simulation(deque([("ping",), ("cut",), ("ping",), ("cut",), ("ping",)]))
    follow(simulation, on_connected=lambda: calls.append(simulation.connections))
    assert calls == [1, 2, 3]
    assert simulation.sent == [{"action": "follow", "kind": "document"}] * 3 + [{"action": "ping"}]


def test_a_deleted_job_is_forgotten() -> None:
    """A log that does not exist any more is not an error."""
    script: Any = [("push", "job_a", 1, 1), ("cut",), ("push", "job_b", 1, 1)]
    simulation = Simulation(deque(script), failures=deque([200, 404]))
    assert [event.job_id for event in follow(simulation)] == ["job_a", "job_b"]


@pytest.mark.parametrize(("status", "error"), [(401, Unauthorized), (404, NotFound)])
def test_permanent_errors_are_raised(status: int, error: type[Exception]) -> None:
    """A revoked key, for example, is not retried."""
    simulation = Simulation(deque([("cut",)]), failures=deque([status]))
    with pytest.raises(error):
        follow(simulation)
    assert simulation.requests == ["POST /live/tickets"] * 2


def test_a_service_that_was_never_reached_is_given_up() -> None:
    """Without a successful connection, the eighth failure is raised."""
    simulation = Simulation(deque(), refuses_websockets=True)
    with pytest.raises(ConnectionFailed):
        follow(simulation)
    assert simulation.connections == 8


def test_a_service_that_was_reached_is_never_given_up() -> None:
    """After a successful connection, temporary failures are retried without a limit."""
    simulation = Simulation(deque([("cut",), ("push", "job_a", 1, 1)]), failures=deque([0] * 50))
    assert [event.job_id for event in follow(simulation)] == ["job_a"]
    assert simulation.requests == ["POST /live/tickets"] * 52


def test_the_number_of_remembered_jobs_is_limited() -> None:
    """The job without events for longest is forgotten."""
    seen = SeenEvents(limit=3)
    for job_id in ("a", "b", "c", "a", "d"):
        seen.accept(JobEvent.of(payload(seen.sequence(job_id) + 1, "progressed", job_id)))
    assert sorted(seen.open_jobs()) == ["a", "c", "d"]


@pytest.mark.parametrize("verb", ["completed", "simmered"])
@pytest.mark.parametrize(
    ("status", "open_jobs"),
    [("completed", []), ("failed", []), ("canceled", []), ("running", ["a"]), ("queued", ["a"])],
)
def test_jobs_end_by_their_status(verb: str, status: str, open_jobs: list[str]) -> None:
    """A final status ends a job, whatever the verb is. Its events are still recognized as repetitions."""
    seen, last = SeenEvents(), JobEvent.of(payload(1, verb, "a", status=status))
    assert seen.accept(last)
    assert not seen.accept(last)
    assert seen.open_jobs() == open_jobs


def test_the_status_is_requested_if_events_lack_it() -> None:
    """After a break, the status of a job is requested until it has ended."""
    script: Any = [("push", "job_a", 2, 2), ("push", "job_b", 1, 1), ("cut",), ("ping",), ("cut",), ("ping",)]
    simulation = Simulation(deque(script), sends_status=False, statuses={"job_a": "completed"})
    follow(simulation)
    assert [line for line in simulation.requests if line.startswith("GET")] == [
        "GET /jobs/job_a/events?after=2",
        "GET /jobs/job_a/status",
        *["GET /jobs/job_b/events?after=1", "GET /jobs/job_b/status"] * 2,
    ]


def test_a_job_is_open_until_its_last_event_was_seen() -> None:
    """A final status does not end a job if its last event is still missing."""
    seen = SeenEvents()
    seen.accept(JobEvent.of(without_status(payload(1, "started", "a"))))
    seen.note_status(JobStatus.of({"job_id": "a", "status": "completed", "stage": "", "sequence": 2}))
    assert seen.open_jobs() == ["a"]


def test_follow_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library for WebSockets, the error says how to install it, before anything is sent."""
    monkeypatch.setattr(_io, "HAS_WEBSOCKETS", False)
    simulation = Simulation(deque())
    with pytest.raises(MissingExtra, match=r"pip install 'recado\[live\]'"):
        follow(simulation)
    assert simulation.requests == []


# ── with sockets ─────────────────────────────────────────────────────────────────────────────────────────


Follow = Callable[..., list[Any]]


@pytest.fixture
def follow_service(service: StubService, asynchronous: bool, short_delays: None) -> Follow:
    """The first `count` events that a client yields."""

    def follow(count: int, on_connected: Callable[[], object]) -> list[Any]:
        events = collect(
            service,
            lambda client: client.follow(timeout=10, on_connected=on_connected),
            asynchronous=asynchronous,
            count=count,
        )
        return [event.raw for event in events]

    return follow


EVENTS = [payload(number, "progressed", job_id) for job_id in ("job_a", "job_b") for number in (1, 2)]
FRAME_BYTES = 4
"""Of a WebSocket frame around a message of more than 125 bytes."""


@pytest.mark.enable_socket
def test_events_of_all_jobs_come_over_one_websocket(service: StubService, follow_service: Follow) -> None:
    """A ticket opens the WebSocket. Truncated events are fetched."""
    service.reset([], batch_size=2, repeats=1, truncated={2})
    assert follow_service(4, lambda: service.append(*EVENTS)) == EVENTS
    assert service.requests[:2] == ["POST /v1/live/tickets", "WS"]
    assert service.received == [{"action": "follow", "kind": "document"}]
    assert service.tickets == set()


@pytest.mark.enable_socket
@pytest.mark.parametrize("events", [-1, 0, 1])
@pytest.mark.parametrize("more", [0, 1, 30])
def test_a_websocket_that_breaks_is_reopened(
    service: StubService, follow_service: Follow, events: int, more: int
) -> None:
    """The new connection has another ticket. An event in a message that was cut is fetched or sent again."""
    first, second = EVENTS[:2]
    messages = [{"type": "following", "kind": "document"}, {"type": "events", "events": [first]}]
    lengths = [len(json.dumps(messages[0])) + 2, len(json.dumps(messages[1])) + FRAME_BYTES]
    service.reset([], cuts=deque([None, sum(lengths[: events + 1]) + more]))
    pending = iter([first, second])

    def append_one() -> None:
        for event in islice(pending, 1):
            service.append(event)

    def on_connected() -> None:
        append_one()
        if events != 0:
            threading.Timer(0.05, append_one).start()

    yielded = follow_service(1 if events == 0 else 2, on_connected)
    # The job began in a message that was cut, so it is unknown until its next event.
    assert yielded == ([second] if events == 0 else [first, second])
    assert service.requests.count("POST /v1/live/tickets") == 2


@pytest.mark.enable_socket
def test_an_unknown_kind_is_refused(service: StubService) -> None:
    """The error of the service is raised without a retry."""
    with Recado(service.url, KEY) as client, pytest.raises(InvalidRequest, match="choose from document"):
        next(client.follow("sonnet"))
    assert service.requests == ["POST /v1/live/tickets", "WS"]


@pytest.mark.enable_socket
def test_follow_raises_after_the_timeout(service: StubService) -> None:
    """WaitTimeout is raised after `timeout` seconds, even without an event."""
    began = time.monotonic()
    with Recado(service.url, KEY) as client, pytest.raises(WaitTimeout):
        next(client.follow(timeout=0.2))
    assert 0.15 < time.monotonic() - began < 2
