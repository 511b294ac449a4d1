"""The WebSocket of one job: pings, replays, and errors."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

import pytest

from recado import Recado, _io
from recado._coroutines import run
from recado._event_cursor import EventCursor, EventGap
from recado._messages import events_in_message
from recado._streamed_text import StreamedText
from recado._websocket import JobWebSocketSession
from recado.errors import BadAnswer, ConnectionFailed, MissingExtra
from recado.models import Delta
from tests.unit.client.stub_service import JOB_ID, KEY, StubService, collect, payload, payloads


class StubWebSocket:
    """Receives these messages, and nothing in place of None."""

    def __init__(self, *messages: Any) -> None:
        self.sent: list[Any] = []
        self.messages = deque(messages)

    async def receive(self, seconds: float) -> str | None:
        message = self.messages.popleft()
        return message if message is None or isinstance(message, str) else json.dumps(message)

    async def send(self, text: str) -> None:
        self.sent.append(json.loads(text))


def receive(session: JobWebSocketSession, count: int = 1) -> tuple[list[int], list[Delta]]:
    """The numbers of the new events, and the new text, in the next `count` messages."""

    async def read() -> tuple[list[int], list[Delta]]:
        events, deltas = [], []
        for _ in range(count):
            message = await session.receive(1)
            for item in events_in_message(message):
                event = await session.accept(item)
                events += [event.sequence] if event else []
            delta = await session.handle(message or {})
            deltas += [delta] if delta else []
        return events, deltas

    return run(read())


def receive_all(socket: StubWebSocket) -> list[int]:
    return receive(JobWebSocketSession(socket, EventCursor(JOB_ID)), len(socket.messages))[0]


def events(*sequences: int) -> dict[str, Any]:
    return {"type": "events", "events": [payload(number, "progressed") for number in sequences]}


def subscribed(sequence: int) -> dict[str, Any]:
    return {"type": "subscribed", "job_id": JOB_ID, "sequence": sequence}


def replay_request(after: int) -> dict[str, Any]:
    return {"action": "subscribe", "job_id": JOB_ID, "after": after}


def delta(index: int, text: str = "") -> dict[str, Any]:
    return {"type": "delta", "job_id": JOB_ID, "index": index, "text": text}


def snapshot(index: int, *parts: str) -> list[dict[str, Any]]:
    fields = {"type": "snapshot", "job_id": JOB_ID, "index": index, "parts": len(parts)}
    return [{**fields, "part": part, "text": text} for part, text in enumerate(parts)]


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────


def test_an_unanswered_ping_ends_the_session() -> None:
    """The connection is broken if no message follows a ping."""
    socket = StubWebSocket(events(1), subscribed(1), None, {"type": "pong"}, None, None)
    with pytest.raises(ConnectionFailed, match="does not respond"):
        receive_all(socket)
    assert socket.sent == [{"action": "ping"}, {"action": "ping"}]


def test_a_ping_of_the_service_answers_ours() -> None:
    """A ping of the service counts as a response, and needs none itself."""
    socket = StubWebSocket(subscribed(0), None, {"type": "ping"}, None, {"type": "ping"}, None)
    assert receive_all(socket) == []
    assert socket.sent == [{"action": "ping"}] * 3


def test_every_fifth_ping_is_a_replay_request() -> None:
    """A pushed event may have been lost while the connection was idle."""
    socket = StubWebSocket(events(1), subscribed(1), *[None, {"type": "pong"}] * 5)
    receive_all(socket)
    assert socket.sent == [{"action": "ping"}] * 4 + [replay_request(1)]


def test_a_missing_first_replay_is_requested() -> None:
    """If the replay of the URL has not ended when the session is idle, it is requested."""
    socket = StubWebSocket(None, subscribed(0), None)
    receive_all(socket)
    assert socket.sent == [replay_request(0), {"action": "ping"}]


def test_a_replay_without_the_missing_events_is_an_error() -> None:
    """A replay that stays incomplete is not requested forever."""
    with pytest.raises(EventGap):
        receive_all(StubWebSocket(subscribed(5), subscribed(5)))


def test_an_event_that_is_sent_during_a_replay_is_requested_after_it() -> None:
    """It was dropped before, because events before it were missing."""
    socket = StubWebSocket(events(3), events(1), subscribed(1))
    assert receive_all(socket) == [1]
    assert socket.sent == [replay_request(1)]


def test_an_error_message_ends_the_session() -> None:
    """Errors about other jobs are ignored."""
    error = {"type": "error", "code": "forbidden", "message": "This connection was closed. Connect again."}
    assert receive_all(StubWebSocket({**error, "job_id": "job_other"}, subscribed(0))) == []
    with pytest.raises(ConnectionFailed, match="forbidden: This connection was closed"):
        receive_all(StubWebSocket(error))


@pytest.mark.parametrize("message", [{"type": "events"}, [], {"type": "delta", "job_id": JOB_ID}, "no JSON"])
def test_malformed_messages_are_errors(message: Any) -> None:
    """A message that is not JSON or lacks a field raises BadAnswer."""
    with pytest.raises(BadAnswer):
        receive_all(StubWebSocket(message))


@pytest.mark.enable_socket
def test_truncated_events_are_fetched(service: StubService) -> None:
    """Truncated events are yielded whole, with a single request for the log."""
    service.reset(payloads(8), truncated={1, 5, 6}, batch_size=3)
    with Recado(service.url, KEY) as client:
        assert [event.raw for event in client.watch(JOB_ID, transport="websocket")] == service.log
    assert [line for line in service.requests if "/events" in line] == [f"GET /v1/jobs/{JOB_ID}/events?after=0"]


@pytest.mark.enable_socket
def test_wait_does_not_fetch_truncated_events(service: StubService) -> None:
    """The envelope is enough to wait for the end."""
    *before, last = payloads(8)
    service.reset(before, truncated={8})
    with service.append_later(0.1, last), Recado(service.url, KEY) as client:
        assert client.wait(JOB_ID, transport="websocket").status == "completed"
    assert not [line for line in service.requests if "events" in line]


@pytest.mark.enable_socket
def test_a_websocket_needs_the_extra(service: StubService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library for WebSockets, the error says how to install it."""
    monkeypatch.setattr(_io, "HAS_WEBSOCKETS", False)
    with Recado(service.url, KEY) as client, pytest.raises(MissingExtra, match=r"pip install 'recado\[live\]'"):
        list(client.watch(JOB_ID, transport="websocket"))


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_missing_delta_is_replayed() -> None:
    """The replay is requested from the last event, after a running replay has ended."""
    socket = StubWebSocket(events(1, 2), delta(3), subscribed(2), subscribed(2), *snapshot(5, "abcde"))
    session = JobWebSocketSession(socket, EventCursor(JOB_ID))
    assert receive(session, 2) == ([1, 2], [])
    assert socket.sent == []
    _, deltas = receive(session, 3)
    assert socket.sent == [replay_request(2)]
    assert [each.text for each in deltas] == ["abcde"]


def test_a_new_session_requests_a_replay_at_once() -> None:
    """The replay requests of earlier sessions are not counted."""
    text = StreamedText()
    for index in range(2, 8):
        text.accept(delta(index))
    socket = StubWebSocket(subscribed(0), delta(9))
    session = JobWebSocketSession(socket, EventCursor(JOB_ID), text)
    assert receive(session) == ([], [])
    assert socket.sent == []
    receive(session)
    assert socket.sent == [replay_request(0)]


STORY = [delta(3, "lost"), *snapshot(4, "Once", " upon"), delta(5, " a"), delta(5, " a"), delta(6, " time")]


@pytest.mark.enable_socket
def test_an_error_of_on_delta_is_raised(service: StubService, asynchronous: bool) -> None:
    """A closed pipe of the caller is not a broken connection: there is no second try."""

    def fail(_: Delta) -> None:
        raise BrokenPipeError

    service.reset(payloads(8)[:7], messages=STORY)
    with pytest.raises(BrokenPipeError):
        collect(service, lambda client: client.watch(JOB_ID, timeout=5, on_delta=fail), asynchronous=asynchronous)
    assert len(service.requests) == 2  # the job, and its WebSocket


@pytest.mark.enable_socket
def test_on_delta_gets_the_new_text(service: StubService, asynchronous: bool) -> None:
    """The text does not change the events."""
    deltas: list[Delta] = []
    *before, last = payloads(8)
    service.reset(before, messages=[{"type": "ping"}, *STORY], events_after_messages=[last])
    yielded = collect(
        service,
        lambda client: client.watch(JOB_ID, transport="websocket", on_delta=deltas.append),
        asynchronous=asynchronous,
    )
    assert [event.sequence for event in yielded] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [(each.text, each.is_snapshot) for each in deltas] == [
        ("Once upon", True),
        (" a", False),
        (" time", False),
    ]
