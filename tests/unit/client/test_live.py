"""One job's WebSocket: what is asked for when, and a text that comes in pieces."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado import AsyncRecado, Recado, _io
from recado._cursor import Cursor, Gap, Text
from recado._live import JobLine, payloads
from recado.errors import BadAnswer, ConnectionFailed, MissingExtra
from recado.models import Delta
from tests.unit.client.service import JOB_ID, Service, payload
from tests.unit.client.service import payloads as log_of

KEY = "rk_test"


class Memory:
    """A socket that says these messages, and nothing where there is None."""

    def __init__(self, *messages: Any) -> None:
        self.said: list[Any] = []
        self.messages = deque(messages)

    async def receive(self, seconds: float) -> str | None:
        message = self.messages.popleft()
        return None if message is None else json.dumps(message)

    async def send(self, text: str) -> None:
        self.said.append(json.loads(text))


def hear(line: JobLine, count: int = 1) -> tuple[list[int], list[Delta]]:
    """The events and what is new of the text in the next messages."""

    async def hear() -> tuple[list[int], list[Delta]]:
        events, deltas = [], []
        for _ in range(count):
            message = await line.receive(1)
            events += [event for each in payloads(message) if (event := await line.take(each))]
            deltas += [delta for delta in [await line.hear(message or {})] if delta]
        return [event.sequence for event in events], deltas

    return _io.run(hear())


def heard(socket: Memory) -> list[int]:
    return hear(JobLine(socket, Cursor(JOB_ID)), len(socket.messages))[0]


def pushed(*numbers: int) -> dict[str, Any]:
    return {"type": "events", "events": [payload(number, "progressed") for number in numbers]}


def subscribed(number: int) -> dict[str, Any]:
    return {"type": "subscribed", "job_id": JOB_ID, "sequence": number}


def asked(after: int) -> dict[str, Any]:
    return {"action": "subscribe", "job_id": JOB_ID, "after": after}


def delta(index: int, text: str = "") -> dict[str, Any]:
    return {"type": "delta", "job_id": JOB_ID, "index": index, "text": text}


def snapshot(index: int, *parts: str) -> list[dict[str, Any]]:
    facts = {"type": "snapshot", "job_id": JOB_ID, "index": index, "parts": len(parts)}
    return [{**facts, "part": part, "text": text} for part, text in enumerate(parts)]


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────


def test_several_events_in_a_message() -> None:
    """Each event of a message is taken in its order; those that were seen before are dropped."""
    assert heard(Memory(pushed(1, 2), pushed(2, 3), pushed(1), subscribed(3))) == [1, 2, 3]


def test_a_dead_line_is_noticed() -> None:
    """Where not even a ping is answered, the line is dead."""
    socket = Memory(pushed(1), subscribed(1), None, {"type": "pong"}, None, None)
    with pytest.raises(ConnectionFailed, match="silent"):
        heard(socket)
    assert socket.said == [{"action": "ping"}, {"action": "ping"}]


def test_the_pings_of_the_service_are_life() -> None:
    """A ping of the service counts as an answer to ours, and is not answered itself."""
    socket = Memory(subscribed(0), None, {"type": "ping"}, None, {"type": "ping"}, None)
    assert heard(socket) == []
    assert socket.said == [{"action": "ping"}] * 3


def test_a_first_replay_that_does_not_come_is_asked_for() -> None:
    """Where the replay that the link stands for has not ended before a silence, it is asked for."""
    socket = Memory(None, subscribed(0), None)
    heard(socket)
    assert socket.said == [asked(0), {"action": "ping"}]


def test_a_replay_that_lacks_events_is_a_failure() -> None:
    """A log that never gets whole is not asked for for ever."""
    with pytest.raises(Gap):
        heard(Memory(subscribed(5), subscribed(5)))


def test_a_push_that_overtakes_a_replay_is_asked_for() -> None:
    """An event that came too early, while a replay ran, is asked for when the replay has ended without it."""
    socket = Memory(pushed(3), pushed(1), subscribed(1))
    assert heard(socket) == [1]
    assert socket.said == [asked(1)]


def test_an_error_ends_the_line() -> None:
    """What the service refuses is the reason why the line has failed; what it says of other jobs is not."""
    error = {"type": "error", "code": "forbidden", "message": "This connection has ended. Connect again."}
    assert heard(Memory({**error, "job_id": "job_other"}, subscribed(0))) == []
    with pytest.raises(ConnectionFailed, match="forbidden: This connection has ended"):
        heard(Memory(error))


@pytest.mark.parametrize("message", [{"type": "events"}, [], {"type": "delta", "job_id": JOB_ID}])
def test_messages_that_cannot_be_read(message: Any) -> None:
    """A message without what it must have is an error that names it, not a crash."""
    with pytest.raises(BadAnswer):
        heard(Memory(message))


@pytest.mark.enable_socket
@pytest.mark.parametrize("way", ["websocket", "auto"])
def test_what_is_too_large_is_fetched(service: Service, way: Any) -> None:
    """Of an event that fits into no message the envelope is pushed, and the whole is told."""
    service.reset(log_of(8), too_large={1, 5, 6}, pack=3)
    with Recado(service.url, KEY) as client:
        assert [event.raw for event in client.watch(JOB_ID, transport=way)] == service.log
    assert [line for line in service.requests if "/events" in line] == [f"GET /v1/jobs/{JOB_ID}/events?after=0"]


@pytest.mark.enable_socket
def test_waiting_fetches_nothing_that_is_large(service: Service) -> None:
    """Who waits for the end alone needs no more than the envelope."""
    log = log_of(8)
    service.reset(log[:7], too_large={8})
    timer = threading.Timer(0.1, service.append, [log[7]])
    timer.start()
    with Recado(service.url, KEY) as client:
        assert client.wait(JOB_ID, transport="websocket").status == "completed"
    timer.join()
    assert not [line for line in service.requests if "events" in line]


@pytest.mark.enable_socket
def test_without_the_extra_it_is_said_what_to_install(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for a WebSocket without the library is told how to install it."""
    monkeypatch.setattr(_io, "HAS_WEBSOCKETS", False)
    with Recado(service.url, KEY) as client, pytest.raises(MissingExtra, match=r"pip install 'recado\[live\]'"):
        list(client.watch(JOB_ID, transport="websocket"))


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────────


def told(text: Text, *messages: dict[str, Any]) -> list[tuple[str, bool]]:
    deltas = [text.take(message) for message in messages]
    return [(each.text, each.is_snapshot) for each in deltas if each]


def test_deltas_come_once() -> None:
    """A delta that was seen before is dropped."""
    assert told(Text(), delta(1, "a"), delta(1, "a"), delta(2, "b"), delta(1, "a")) == [("a", False), ("b", False)]


def test_a_snapshot_is_told_when_it_is_whole() -> None:
    """The parts of a snapshot are one; the deltas after it go on from there, those before it are in it."""
    text = Text()
    assert told(text, *snapshot(5, "Once ", "upon ", "a ")) == [("Once upon a ", True)]
    assert told(text, delta(4, "upon"), delta(5, "a"), delta(6, "time")) == [("time", False)]


def test_a_part_that_is_missing_leaves_no_hole() -> None:
    """Parts that do not follow each other are no snapshot."""
    text, parts = Text(), snapshot(5, "a", "b", "c")
    assert told(text, parts[0], parts[2]) == []
    assert text.is_wanted
    assert told(text, *parts) == [("abc", True)]
    assert not text.is_wanted
    assert told(text, snapshot(6, "d", "e")[0], snapshot(7, "x", "y")[1]) == []


def test_a_text_that_begins_again() -> None:
    """A snapshot with a smaller number replaces what was there, and counting goes on from it."""
    text = Text(index=9)
    assert told(text, *snapshot(1, "Anew"), delta(2, "!")) == [("Anew", True), ("!", False)]


def test_jumps_are_asked_about_ever_more_rarely() -> None:
    """Who is late is not helped at once, so of a thousand pieces that do not fit only ten ask for a replay."""
    text, asks = Text(), 0
    for index in range(2, 1002):
        assert told(text, delta(index)) == []
        asks, text.is_wanted = asks + text.is_wanted, False
    assert asks == 10


def test_a_jump_asks_for_a_replay() -> None:
    """A piece that does not follow asks for a replay from the last event, once no replay is under way."""
    socket = Memory(pushed(1, 2), delta(3), subscribed(2), subscribed(2), *snapshot(5, "abcde"))
    line = JobLine(socket, Cursor(JOB_ID))
    assert hear(line, 2) == ([1, 2], [])
    assert socket.said == []
    _, deltas = hear(line, 3)
    assert socket.said == [asked(2)]
    assert [each.text for each in deltas] == ["abcde"]


def test_a_new_line_asks_anew() -> None:
    """How often was asked on a line that is no more does not count on the next, which may be helped at once."""
    text = Text()
    told(text, *(delta(index) for index in range(2, 8)))
    socket = Memory(subscribed(0), delta(9))
    line = JobLine(socket, Cursor(JOB_ID), text)
    assert hear(line) == ([], [])
    assert socket.said == []
    hear(line)
    assert socket.said == [asked(0)]


@dataclass
class Producer:
    """Says a text as the service does: all of it to who has just come or asked again, else what is added."""

    text: str = ""
    index: int = 0
    is_greeted: bool = False
    last: list[dict[str, Any]] = field(default_factory=list)

    def write(self, added: str, parts: int) -> list[dict[str, Any]]:
        self.text, self.index = self.text + added, self.index + 1
        self.last = [delta(self.index, added)] if self.is_greeted else snapshot(self.index, *self._in(parts))
        self.is_greeted = True
        return self.last

    def begin_again(self) -> None:
        self.text, self.index, self.is_greeted = "", 0, False

    def _in(self, parts: int) -> list[str]:
        size = -(-len(self.text) // parts) or 1
        return [self.text[start : start + size] for start in range(0, len(self.text), size)] or [""]


@dataclass
class Reader:
    """A client and what it has put together."""

    socket: Memory = field(default_factory=Memory)
    text: Text = field(default_factory=Text)
    shown: str = ""

    def __post_init__(self) -> None:
        self.connect()

    def connect(self) -> None:
        self.socket = Memory()
        self.line = JobLine(self.socket, Cursor(JOB_ID), self.text)
        self.hear(subscribed(0))

    def hear(self, *messages: dict[str, Any]) -> None:
        self.socket.messages.extend(messages)
        for each in hear(self.line, len(messages))[1]:
            self.shown = each.text if each.is_snapshot else self.shown + each.text

    def answer(self) -> bool:
        """Whether it had asked for a replay."""
        had_asked = bool(self.socket.said)
        if had_asked:
            self.socket.said.clear()
            self.hear(subscribed(0))
        return had_asked


WORDS = st.text("ab", max_size=3)
HAPPENINGS = st.one_of(
    st.tuples(st.sampled_from(["write", "lose", "fail"]), WORDS, st.integers(1, 4)),
    st.tuples(st.sampled_from(["repeat", "answer", "cut", "begin again"]), st.just(""), st.just(1)),
)


@given(st.lists(HAPPENINGS, max_size=40))
def test_the_text_is_the_text(happenings: list[tuple[str, str, int]]) -> None:
    """Deltas and snapshots, lost, repeated, broken off, begun again, over cut lines: the text is exact."""
    producer, reader = Producer(), Reader()
    for what, added, parts in happenings:
        match what:
            case "write":
                reader.hear(*producer.write(added, parts))
            case "lose" if producer.is_greeted:
                producer.write(added, parts)
            case "fail":  # some of it has arrived, and the producer knows that not all has
                said = producer.write(added, parts)
                reader.hear(*said[: len(said) // 2])
                producer.is_greeted = False
            case "repeat" if producer.is_greeted:
                reader.hear(*producer.last)
            case "answer":
                producer.is_greeted &= not reader.answer()
            case "cut":
                reader.connect()
                producer.is_greeted = False
            case "begin again":
                producer.begin_again()
    for _ in range(2 * len(happenings) + 4):
        producer.is_greeted &= not reader.answer()
        reader.hear(*producer.write("c", 3))
    assert reader.shown == producer.text


STORY = [delta(3, "lost"), *snapshot(4, "Once", " upon"), delta(5, " a"), delta(5, " a"), delta(6, " time")]


@pytest.mark.enable_socket
@pytest.mark.parametrize("asynchronous", [False, True], ids=["blocking", "asyncio"])
def test_pieces_are_told_beside_the_log(service: Service, asynchronous: bool) -> None:
    """What is new of a text goes to `on_delta`; the events stay what they are."""
    pieces: list[Delta] = []
    *before, last = log_of(8)
    service.reset(before, extra=[{"type": "ping"}, *STORY], then=[last])
    seen = asyncio.run(watch_asyncio(service, pieces)) if asynchronous else watch_blocking(service, pieces)
    assert seen == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [(piece.text, piece.is_snapshot) for piece in pieces] == [
        ("Once upon", True),
        (" a", False),
        (" time", False),
    ]


def watch_blocking(service: Service, pieces: list[Delta]) -> list[int]:
    with Recado(service.url, KEY) as client:
        watching = client.watch(JOB_ID, transport="websocket", on_delta=pieces.append)
        return [event.sequence for event in watching]


async def watch_asyncio(service: Service, pieces: list[Delta]) -> list[int]:
    async with AsyncRecado(service.url, KEY) as client:
        watching = client.watch(JOB_ID, transport="websocket", on_delta=pieces.append)
        return [event.sequence async for event in watching]
