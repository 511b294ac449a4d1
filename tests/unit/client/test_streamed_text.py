"""Deltas and snapshots of a text that a job writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recado._event_cursor import EventCursor
from recado._streamed_text import StreamedText
from recado._websocket import JobWebSocketSession
from tests.unit.client.stub_service import JOB_ID
from tests.unit.client.test_websocket import StubWebSocket, delta, receive, snapshot, subscribed


def accept(text: StreamedText, *messages: dict[str, Any]) -> list[tuple[str, bool]]:
    deltas = [text.accept(message) for message in messages]
    return [(each.text, each.is_snapshot) for each in deltas if each]


def test_a_snapshot_is_returned_after_its_last_part() -> None:
    """Its parts are joined. Deltas that it contains are dropped, later ones are accepted."""
    text = StreamedText()
    assert accept(text, *snapshot(5, "Once ", "upon ", "a ")) == [("Once upon a ", True)]
    assert accept(text, delta(4, "upon"), delta(5, "a"), delta(6, "time")) == [("time", False)]


def test_a_snapshot_without_a_part_is_dropped() -> None:
    """A replay is requested, and the next complete snapshot is accepted."""
    text, parts = StreamedText(), snapshot(5, "a", "b", "c")
    assert accept(text, parts[0], parts[2]) == []
    assert text.needs_replay
    assert accept(text, *parts) == [("abc", True)]
    assert not text.needs_replay
    assert accept(text, snapshot(6, "d", "e")[0], snapshot(7, "x", "y")[1]) == []


def test_replay_requests_become_rarer() -> None:
    """Of 1,000 deltas after a gap only ten request a replay, because a replay takes a while to arrive."""
    text, requests = StreamedText(), 0
    for index in range(2, 1002):
        assert accept(text, delta(index)) == []
        requests, text.needs_replay = requests + text.needs_replay, False
    assert requests == 10


@dataclass
class Writer:
    """Writes a text as the service does: a snapshot after each subscription, and else deltas."""

    text: str = ""
    index: int = 0
    has_sent_snapshot: bool = False
    last: list[dict[str, Any]] = field(default_factory=list)

    def write(self, added: str, parts: int) -> list[dict[str, Any]]:
        self.text, self.index = self.text + added, self.index + 1
        is_delta = self.has_sent_snapshot
        self.last = [delta(self.index, added)] if is_delta else snapshot(self.index, *self._split(parts))
        self.has_sent_snapshot = True
        return self.last

    def restart(self) -> None:
        self.text, self.index, self.has_sent_snapshot = "", 0, False

    def _split(self, parts: int) -> list[str]:
        size = -(-len(self.text) // parts) or 1
        return [self.text[start : start + size] for start in range(0, len(self.text), size)] or [""]


@dataclass
class Reader:
    """A client, and the text that it has assembled."""

    socket: StubWebSocket = field(default_factory=StubWebSocket)
    text: StreamedText = field(default_factory=StreamedText)
    shown: str = ""

    def __post_init__(self) -> None:
        self.connect()

    def connect(self) -> None:
        self.socket = StubWebSocket()
        self.session = JobWebSocketSession(self.socket, EventCursor(JOB_ID), self.text)
        self.receive(subscribed(0))

    def receive(self, *messages: dict[str, Any]) -> None:
        self.socket.messages.extend(messages)
        for each in receive(self.session, len(messages))[1]:
            self.shown = each.text if each.is_snapshot else self.shown + each.text

    def end_replay(self) -> bool:
        """Whether a replay was requested."""
        was_requested = bool(self.socket.sent)
        if was_requested:
            self.socket.sent.clear()
            self.receive(subscribed(0))
        return was_requested


STEPS = st.one_of(
    st.tuples(
        st.sampled_from(["write", "lose", "cut while writing"]), st.text("ab", max_size=3), st.integers(1, 4)
    ),
    st.tuples(st.sampled_from(["repeat", "end replay", "cut", "restart"]), st.just(""), st.just(1)),
)


@given(st.lists(STEPS, max_size=40))
def test_the_text_is_complete(steps: list[tuple[str, str, int]]) -> None:
    """Deltas and snapshots are lost, repeated and cut, texts restart, and connections break."""
    writer, reader = Writer(), Reader()
    for what, added, parts in steps:
        match what:
            case "write":
                reader.receive(*writer.write(added, parts))
            case "lose" if writer.has_sent_snapshot:
                writer.write(added, parts)
            case "cut while writing":  # the writer knows that some messages have not arrived
                messages = writer.write(added, parts)
                reader.receive(*messages[: len(messages) // 2])
                writer.has_sent_snapshot = False
            case "repeat" if writer.has_sent_snapshot:
                reader.receive(*writer.last)
            case "end replay":
                writer.has_sent_snapshot &= not reader.end_replay()
            case "cut":
                reader.connect()
                writer.has_sent_snapshot = False
            case "restart":
                writer.restart()
    for _ in range(2 * len(steps) + 4):
        writer.has_sent_snapshot &= not reader.end_replay()
        reader.receive(*writer.write("c", 3))
    assert reader.shown == writer.text
