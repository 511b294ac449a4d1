"""Streamed text (core.live.channel)."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from hypothesis import given
from hypothesis import strategies as st

from core import ids
from core.live import messages
from core.live.channel import FLUSH_SECONDS, REFRESH_SECONDS, Channel
from core.live.messages import FRAME_BYTES
from core.live.sockets import SendOutcome
from core.live.subscriptions import Subscribers, Subscription
from tests.unit.examples import FakeClock

JOB = ids.new("job")
Message = dict[str, Any]


@dataclass
class Client:
    """A client: a snapshot replaces the text, a delta appends, repeated deltas are ignored, and a gap needs a
    snapshot.
    """

    text: str = ""
    index: int = 0
    parts: int = 0
    has_gap: bool = False
    received: list[Message] = field(default_factory=list)

    def receive(self, message: Message) -> None:
        assert message["job_id"] == JOB
        self.received.append(message)
        if message["type"] == "snapshot":
            self._take(message)
        elif message["index"] == self.index + 1 and not self.has_gap:
            self.text, self.index = self.text + message["text"], message["index"]
        elif message["index"] > self.index:
            self.has_gap = True

    def _take(self, message: Message) -> None:
        if message["part"] == 0:
            self.text, self.parts = "", 0
        assert message["part"] == self.parts < message["parts"]
        self.text, self.parts = self.text + message["text"], self.parts + 1
        if self.parts == message["parts"]:
            self.index, self.has_gap = message["index"], False


class FakeLive:
    """Subscriptions, sockets and a clock. `breaks`: how many more messages a connection receives, and the
    outcome.
    """

    def __init__(self) -> None:
        self.clock = FakeClock(0.0)
        self.clients: dict[str, Client] = {}
        self.rows: dict[str, Subscription] = {}
        self.breaks: dict[str, tuple[int, SendOutcome]] = {}
        self.deleted: list[str] = []
        self.reads: list[float] = []
        self.sent: list[tuple[float, Counter[str]]] = []
        self.error: Exception | None = None
        self._requests = 0

    def channel(self) -> Channel:
        return Channel(JOB, self, self, clock=self.clock)  # type: ignore[arg-type]

    def subscribe(self, name: str) -> Client:
        """Subscribe, for the first time or again, actively."""
        self._requests += 1
        self.rows[name] = Subscription(
            connection_id=name, job_id=JOB, after=0, request_id=str(self._requests), connected_at=0, active=True
        )
        return self.clients.setdefault(name, Client())

    # core.live.subscriptions.Subscriptions

    def subscribers(self, job_id: str) -> Subscribers:
        self.reads.append(self.clock.now)
        assert job_id == JOB
        if self.error:
            raise self.error
        return Subscribers(1, list(self.rows.values()))

    def delete_connection(self, connection_id: str) -> None:
        if self.error:
            raise self.error
        self.deleted.append(connection_id)
        self.rows.pop(connection_id, None)

    # core.live.sockets.Sockets

    def send_all(self, messages: Mapping[str, Sequence[str]]) -> dict[str, SendOutcome]:
        assert all(messages.values())
        self.sent.append((self.clock.now, Counter({name: len(texts) for name, texts in messages.items()})))
        return {name: self._send(name, texts) for name, texts in messages.items()}

    def _send(self, name: str, messages: Sequence[str]) -> SendOutcome:
        left, outcome = self.breaks.pop(name, (len(messages), SendOutcome.SENT))
        for text in messages[:left]:
            assert len(text.encode()) <= FRAME_BYTES
            self.clients[name].receive(json.loads(text))
        return outcome if left < len(messages) else SendOutcome.SENT


@pytest.fixture
def live() -> FakeLive:
    return FakeLive()


def deltas(client: Client) -> list[str]:
    return [message["text"] for message in client.received if message["type"] == "delta"]


def snapshots(client: Client) -> list[str]:
    return [message["text"] for message in client.received if message["type"] == "snapshot"]


# ── any order of events ──────────────────────────────────────────────────────────────────────────────────────

NAMES = st.sampled_from("abc")
HUGE = 'ñ\0"👩‍🚀' * 9000
words = st.text(max_size=5) | st.just(HUGE)
failures = st.tuples(NAMES, st.integers(0, 4), st.sampled_from([SendOutcome.FAILED, SendOutcome.GONE]))
steps = st.one_of(
    st.tuples(st.just("write"), words),
    st.tuples(st.just("write"), words),
    st.tuples(st.just("pass"), st.sampled_from([0.01, FLUSH_SECONDS, REFRESH_SECONDS])),
    st.tuples(st.just("subscribe"), NAMES),
    st.tuples(st.just("leave"), NAMES),
    st.tuples(st.just("break"), failures),
    st.tuples(st.just("flush"), st.none()),
    st.tuples(st.just("unsettle"), st.booleans()),
)


def run(live: FakeLive, channel: Channel, steps: Sequence[tuple[str, Any]]) -> str:
    """Carry out the steps; returns the written text."""
    text = ""
    for verb, fact in steps:
        if verb == "write":
            text += fact
            channel.write(fact)
        elif verb == "flush":
            channel.flush()
        elif verb == "pass":
            live.clock.now += fact
        elif verb == "subscribe":
            live.subscribe(fact)
        elif verb == "leave":
            live.rows.pop(fact, None)
        elif verb == "break":
            live.breaks[fact[0]] = fact[1:]
        else:
            live.error = ClientError({}, "Query") if fact else None
        subscribe_again_after_gaps(live)
    return text


def subscribe_again_after_gaps(live: FakeLive) -> None:
    for name, client in live.clients.items():
        if client.has_gap and name in live.rows:
            live.subscribe(name)


@given(st.lists(steps, max_size=40))
def test_subscribers_at_the_end_have_the_text(steps: list[tuple[str, Any]]) -> None:
    """Whatever fails before, the subscribers at the end have the whole text."""
    live = FakeLive()
    with live.channel() as channel:
        text = run(live, channel, steps)
        live.error, live.breaks = None, {}
    for name in live.rows:
        assert live.clients[name].text == text


@given(st.lists(steps, max_size=40))
def test_clients_have_a_prefix(steps: list[tuple[str, Any]]) -> None:
    """A client without a gap always has a prefix of the text."""
    live = FakeLive()
    with live.channel() as channel:
        text = run(live, channel, steps)
        for client in live.clients.values():
            if not client.has_gap:
                assert text.startswith(client.text)


@given(st.lists(st.tuples(st.floats(0, 0.3), st.text(min_size=1, max_size=3)), max_size=60))
def test_rate(tokens: list[tuple[float, str]]) -> None:
    """A subscriber receives at most ten messages a second, and subscribers are read once a second."""
    live = FakeLive()
    client = live.subscribe("a")
    channel = live.channel()
    for gap, token in tokens:
        live.clock.now += gap
        channel.write(token)
    moments = [moment for moment, _ in live.sent]
    assert all(after - before >= FLUSH_SECONDS for before, after in itertools.pairwise(moments))
    assert all(after - before >= REFRESH_SECONDS for before, after in itertools.pairwise(live.reads))
    with channel:
        pass
    assert client.text == "".join(token for _, token in tokens)
    assert len(client.received) <= 1 + len(moments)


# ── single cases ─────────────────────────────────────────────────────────────────────────────────────────────


def test_first_text(live: FakeLive) -> None:
    """A subscriber from the start gets a snapshot with the first text at once, and then deltas."""
    client = live.subscribe("a")
    channel = live.channel()
    channel.write("one ")
    assert client.received == [
        {"type": "snapshot", "job_id": JOB, "index": 1, "part": 0, "parts": 1, "text": "one "}
    ]
    channel.write("two ")
    assert len(client.received) == 1
    live.clock.now += FLUSH_SECONDS
    channel.write("three")
    assert client.received[1:] == [{"type": "delta", "job_id": JOB, "index": 2, "text": "two three"}]


def test_new_subscriber(live: FakeLive) -> None:
    """A new subscriber gets a snapshot within a second; the others get deltas only."""
    first = live.subscribe("a")
    channel = live.channel()
    channel.write("one ")
    new = live.subscribe("b")
    live.clock.now += REFRESH_SECONDS
    channel.write("two ")
    live.clock.now += FLUSH_SECONDS
    channel.write("three")
    assert (snapshots(new), deltas(new)) == (["one two "], ["three"])
    assert (snapshots(first), deltas(first)) == (["one "], ["two ", "three"])


def test_new_subscriber_without_new_text(live: FakeLive) -> None:
    """A flush without new text sends a snapshot to new subscribers only."""
    first = live.subscribe("a")
    channel = live.channel()
    channel.write("one")
    new = live.subscribe("b")
    for _ in range(3):
        live.clock.now += REFRESH_SECONDS
        channel.flush()
    assert (snapshots(new), deltas(new)) == (["one"], [])
    assert (snapshots(first), deltas(first)) == (["one"], [])


def test_subscribing_again(live: FakeLive) -> None:
    """A client that subscribes again gets a snapshot."""
    client = live.subscribe("a")
    channel = live.channel()
    channel.write("one ")
    live.subscribe("a")
    live.clock.now += REFRESH_SECONDS
    channel.write("two")
    assert snapshots(client) == ["one ", "one two"]


def test_requested_subscription(live: FakeLive) -> None:
    """A subscription that is not active yet receives no text."""
    client = live.subscribe("a")
    live.rows["a"] = replace(live.rows["a"], active=False)
    with live.channel() as channel:
        channel.write("one")
    assert client.received == []


def test_failed_message(live: FakeLive) -> None:
    """After a failed message a subscriber gets a snapshot; others get deltas."""
    failing, other = live.subscribe("a"), live.subscribe("b")
    channel = live.channel()
    channel.write("one ")
    live.breaks["a"] = (0, SendOutcome.FAILED)
    for word in ("two ", "three"):
        live.clock.now += FLUSH_SECONDS
        channel.write(word)
    assert (snapshots(failing), deltas(failing)) == (["one ", "one two three"], [])
    assert deltas(other) == ["two ", "three"]


def test_failed_last_message(live: FakeLive) -> None:
    """The last message is attempted a second time."""
    client = live.subscribe("a")
    with live.channel() as channel:
        channel.write("one")
        channel.write("two")
        live.breaks["a"] = (0, SendOutcome.FAILED)
    assert client.text == "onetwo"


def test_gone_connection(live: FakeLive) -> None:
    """A connection that is gone is deleted and gets no more messages."""
    live.subscribe("a")
    live.subscribe("b")
    channel = live.channel()
    live.breaks["a"] = (0, SendOutcome.GONE)
    for word in ("one", "two", "three"):
        channel.write(word)
        live.clock.now += FLUSH_SECONDS
    assert live.deleted == ["a"]
    assert [set(sent) for _, sent in live.sent] == [{"a", "b"}, {"b"}, {"b"}]


def test_snapshots_are_shared(live: FakeLive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot is encoded once for all new subscribers."""
    made: list[int] = []
    of_snapshot = messages.of_snapshot
    monkeypatch.setattr(messages, "of_snapshot", lambda *facts: made.append(1) or of_snapshot(*facts))
    clients = [live.subscribe(str(number)) for number in range(100)]
    live.channel().write("one")
    assert {client.text for client in clients} == {"one"}
    assert made == [1]


def test_lone_surrogates(live: FakeLive) -> None:
    """Lone surrogates can be sent."""
    client = live.subscribe("a")
    with live.channel() as channel:
        channel.write("\ud83d")
        channel.write("\ude00")
    assert client.text == "\ud83d\ude00"


@pytest.mark.parametrize("error", [ClientError({}, "Query"), ReadTimeoutError(endpoint_url="https://x")], ids=str)
def test_errors_of_the_table(live: FakeLive, error: Exception, logged: Callable[[], list[dict[str, Any]]]) -> None:
    """Errors when subscribers are read or deleted do not stop the producer."""
    client = live.subscribe("a")
    live.error = error
    with live.channel() as channel:
        channel.write("one ")
        live.error = None
        live.clock.now += REFRESH_SECONDS
        channel.write("two")
        live.error, live.breaks["a"] = error, (0, SendOutcome.GONE)
        channel.write("three")
    assert snapshots(client) == ["one two"]
    assert {line["level"] for line in logged()} == {"WARNING"}


def test_error_of_producer(live: FakeLive) -> None:
    """An error of the producer is raised, and the text before it is sent."""
    client = live.subscribe("a")

    def produce() -> None:
        with live.channel() as channel:
            channel.write("one ")
            channel.write("two")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        produce()
    assert client.text == "one two"


def test_second_producer(live: FakeLive) -> None:
    """The text of a second producer replaces that of the first."""
    client = live.subscribe("a")
    for text in ("a longer text", "a text"):
        with live.channel() as channel:
            for letter in text:
                channel.write(letter)
                live.clock.now += FLUSH_SECONDS
    assert client.text == "a text"


def test_no_subscribers(live: FakeLive) -> None:
    """Without subscribers or without text nothing is sent."""
    with live.channel() as channel:
        channel.write("one")
    live.subscribe("a")
    with live.channel() as channel:
        channel.write("")
        channel.flush()
    assert live.sent == []
