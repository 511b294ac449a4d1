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
from core.live.channel import FLUSH_SECONDS, REFRESH_SECONDS, Channel
from core.live.messages import FRAME_BYTES
from core.live.sockets import SendOutcome
from core.live.subscriptions import Subscribers, Subscription
from tests.unit.examples import FakeClock

JOB = ids.new("job")
Message = dict[str, Any]


@dataclass
class Listener:
    """A client that follows the rules: parts replace or add, repetitions are dropped, and a jump makes it ask."""

    text: str = ""
    index: int = 0
    parts: int = 0
    wants: bool = False
    heard: list[Message] = field(default_factory=list)

    def hear(self, message: Message) -> None:
        assert message["job_id"] == JOB
        self.heard.append(message)
        if message["type"] == "snapshot":
            self._take(message)
        elif message["index"] == self.index + 1 and not self.wants:
            self.text, self.index = self.text + message["text"], message["index"]
        elif message["index"] > self.index:
            self.wants = True

    def _take(self, message: Message) -> None:
        if message["part"] == 0:
            self.text, self.parts = "", 0
        assert message["part"] == self.parts < message["parts"]
        self.text, self.parts = self.text + message["text"], self.parts + 1
        if self.parts == message["parts"]:
            self.index, self.wants = message["index"], False


class World:
    """An subscriptions, its sockets and a clock. `breaks`: how many more messages reach a connection, and then what."""

    def __init__(self) -> None:
        self.clock = FakeClock(0.0)
        self.listeners: dict[str, Listener] = {}
        self.rows: dict[str, Subscription] = {}
        self.breaks: dict[str, tuple[int, SendOutcome]] = {}
        self.forgotten: list[str] = []
        self.looks: list[float] = []
        self.said: list[tuple[float, Counter[str]]] = []
        self.trouble: Exception | None = None
        self._askings = 0

    def channel(self) -> Channel:
        return Channel(JOB, self, self, clock=self.clock)  # type: ignore[arg-type]

    def join(self, name: str) -> Listener:
        """Ask, for the first time or anew, and be joined."""
        self._askings += 1
        self.rows[name] = Subscription(
            connection_id=name, job_id=JOB, after=0, asking=str(self._askings), connected_at=0, joined=True
        )
        return self.listeners.setdefault(name, Listener())

    # what a channel knows of its subscriptions

    def subscribers(self, job_id: str) -> Subscribers:
        self.looks.append(self.clock.now)
        assert job_id == JOB
        if self.trouble:
            raise self.trouble
        return Subscribers(1, list(self.rows.values()))

    def forget(self, connection_id: str) -> None:
        if self.trouble:
            raise self.trouble
        self.forgotten.append(connection_id)
        self.rows.pop(connection_id, None)

    # and of its sockets

    def send_all(self, messages: Mapping[str, Sequence[str]]) -> dict[str, SendOutcome]:
        assert all(messages.values())
        self.said.append((self.clock.now, Counter({who: len(what) for who, what in messages.items()})))
        return {who: self._tell(who, what) for who, what in messages.items()}

    def _tell(self, who: str, messages: Sequence[str]) -> SendOutcome:
        left, outcome = self.breaks.pop(who, (len(messages), SendOutcome.SENT))
        for text in messages[:left]:
            assert len(text.encode()) <= FRAME_BYTES
            self.listeners[who].hear(json.loads(text))
        return outcome if left < len(messages) else SendOutcome.SENT


@pytest.fixture
def world() -> World:
    return World()


def deltas(listener: Listener) -> list[str]:
    return [message["text"] for message in listener.heard if message["type"] == "delta"]


def snapshots(listener: Listener) -> list[str]:
    return [message["text"] for message in listener.heard if message["type"] == "snapshot"]


# ── whatever happens ─────────────────────────────────────────────────────────────────────────────────────────

NAMES = st.sampled_from("abc")
HUGE = 'ñ\0"👩‍🚀' * 9000
words = st.text(max_size=5) | st.just(HUGE)
failures = st.tuples(NAMES, st.integers(0, 4), st.sampled_from([SendOutcome.FAILED, SendOutcome.GONE]))
steps = st.one_of(
    st.tuples(st.just("write"), words),
    st.tuples(st.just("write"), words),
    st.tuples(st.just("pass"), st.sampled_from([0.01, FLUSH_SECONDS, REFRESH_SECONDS])),
    st.tuples(st.just("join"), NAMES),
    st.tuples(st.just("leave"), NAMES),
    st.tuples(st.just("break"), failures),
    st.tuples(st.just("flush"), st.none()),
    st.tuples(st.just("unsettle"), st.booleans()),
)


def play(world: World, channel: Channel, story: Sequence[tuple[str, Any]]) -> str:
    """Tell the story; returns the text."""
    text = ""
    for verb, fact in story:
        if verb == "write":
            text += fact
            channel.write(fact)
        elif verb == "flush":
            channel.flush()
        elif verb == "pass":
            world.clock.now += fact
        elif verb == "join":
            world.join(fact)
        elif verb == "leave":
            world.rows.pop(fact, None)
        elif verb == "break":
            world.breaks[fact[0]] = fact[1:]
        else:
            world.trouble = ClientError({}, "Query") if fact else None
        ask_where_wanted(world)
    return text


def ask_where_wanted(world: World) -> None:
    for name, listener in world.listeners.items():
        if listener.wants and name in world.rows:
            world.join(name)


@given(st.lists(steps, max_size=40))
def test_whoever_listens_at_the_end_has_the_text(story: list[tuple[str, Any]]) -> None:
    """Whatever joins, asks anew, breaks or leaves: who is there at the end has exactly the whole text."""
    world = World()
    with world.channel() as channel:
        text = play(world, channel, story)
        world.trouble, world.breaks = None, {}
    for name in world.rows:
        assert world.listeners[name].text == text


@given(st.lists(steps, max_size=40))
def test_a_text_never_goes_wrong(story: list[tuple[str, Any]]) -> None:
    """What a client shows that misses nothing is at every moment how the text began, and parts fit together."""
    world = World()
    with world.channel() as channel:
        text = play(world, channel, story)
        for listener in world.listeners.values():
            if not listener.wants:
                assert text.startswith(listener.text)


@given(st.lists(st.tuples(st.floats(0, 0.3), st.text(min_size=1, max_size=3)), max_size=60))
def test_pace(tokens: list[tuple[float, str]]) -> None:
    """However fast tokens come, a listener is sent at most ten times a second, and looked for once a second."""
    world = World()
    listener = world.join("a")
    channel = world.channel()
    for gap, token in tokens:
        world.clock.now += gap
        channel.write(token)
    moments = [moment for moment, _ in world.said]
    assert all(after - before >= FLUSH_SECONDS for before, after in itertools.pairwise(moments))
    assert all(after - before >= REFRESH_SECONDS for before, after in itertools.pairwise(world.looks))
    with channel:
        pass
    assert listener.text == "".join(token for _, token in tokens)
    assert len(listener.heard) <= 1 + len(moments)


# ── one by one ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_word_is_said_at_once(world: World) -> None:
    """Who listens from the beginning gets a snapshot with the first word, and then what is added."""
    listener = world.join("a")
    channel = world.channel()
    channel.write("one ")
    assert listener.heard == [
        {"type": "snapshot", "job_id": JOB, "index": 1, "part": 0, "parts": 1, "text": "one "}
    ]
    channel.write("two ")
    assert len(listener.heard) == 1
    world.clock.now += FLUSH_SECONDS
    channel.write("three")
    assert listener.heard[1:] == [{"type": "delta", "job_id": JOB, "index": 2, "text": "two three"}]


def test_who_comes_late(world: World) -> None:
    """Within a second who comes late is sent all there is, once, and the others only what is new."""
    first = world.join("a")
    channel = world.channel()
    channel.write("one ")
    late = world.join("b")
    world.clock.now += REFRESH_SECONDS
    channel.write("two ")
    world.clock.now += FLUSH_SECONDS
    channel.write("three")
    assert (snapshots(late), deltas(late)) == (["one two "], ["three"])
    assert (snapshots(first), deltas(first)) == (["one "], ["two ", "three"])


def test_who_comes_late_to_a_pause(world: World) -> None:
    """Where nothing is added a flush tells who has come late, and nobody else."""
    first = world.join("a")
    channel = world.channel()
    channel.write("one")
    late = world.join("b")
    for _ in range(3):
        world.clock.now += REFRESH_SECONDS
        channel.flush()
    assert (snapshots(late), deltas(late)) == (["one"], [])
    assert (snapshots(first), deltas(first)) == (["one"], [])


def test_who_comes_last(world: World) -> None:
    """Who comes when the last word has been said is sent the whole at the end."""
    with world.channel() as channel:
        channel.write("one")
        late = world.join("b")
    assert late.text == "one"


def test_asking_anew(world: World) -> None:
    """Who asks anew is sent all of it again."""
    listener = world.join("a")
    channel = world.channel()
    channel.write("one ")
    world.join("a")
    world.clock.now += REFRESH_SECONDS
    channel.write("two")
    assert snapshots(listener) == ["one ", "one two"]


def test_who_has_not_joined_is_told_nothing(world: World) -> None:
    """A subscription that is still asking gets its events first: only who has joined hears the text."""
    listener = world.join("a")
    world.rows["a"] = replace(world.rows["a"], joined=False)
    with world.channel() as channel:
        channel.write("one")
    assert listener.heard == []


def test_who_was_not_reached(world: World) -> None:
    """After a failure the whole is sent again, with the next piece; others are sent as ever."""
    failing, other = world.join("a"), world.join("b")
    channel = world.channel()
    channel.write("one ")
    world.breaks["a"] = (0, SendOutcome.FAILED)
    for word in ("two ", "three"):
        world.clock.now += FLUSH_SECONDS
        channel.write(word)
    assert (snapshots(failing), deltas(failing)) == (["one ", "one two three"], [])
    assert deltas(other) == ["two ", "three"]


def test_the_last_word_failed(world: World) -> None:
    """Who could not be reached with the last word is tried once more: no later word would do it."""
    listener = world.join("a")
    with world.channel() as channel:
        channel.write("one")
        channel.write("two")
        world.breaks["a"] = (0, SendOutcome.FAILED)
    assert listener.text == "onetwo"


def test_who_is_gone(world: World) -> None:
    """A connection that is gone is forgotten once, and offset nothing more."""
    world.join("a")
    world.join("b")
    channel = world.channel()
    world.breaks["a"] = (0, SendOutcome.GONE)
    for word in ("one", "two", "three"):
        channel.write(word)
        world.clock.now += FLUSH_SECONDS
    assert world.forgotten == ["a"]
    assert [set(said) for _, said in world.said] == [{"a", "b"}, {"b"}, {"b"}]


def test_a_huge_text(world: World) -> None:
    """A text of megabytes goes out in frames; its snapshot is made once for all who need it."""
    listeners = [world.join(name) for name in "abcd"]
    text = "".join(f"{number} ñ👩‍🚀" for number in range(60_000))
    with world.channel() as channel:
        channel.write(text)
        late = world.join("e")
    assert {listener.text for listener in (*listeners, late)} == {text}
    assert max(said["e"] for _, said in world.said) > len(text.encode()) / FRAME_BYTES


def test_snapshots_are_shared(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many come late, the text so far is made into messages once."""
    made: list[int] = []
    made_as_ever = Channel.__init__.__globals__["messages"].of_snapshot

    def of_snapshot(*facts: Any) -> Any:
        made.append(1)
        return made_as_ever(*facts)

    monkeypatch.setattr("core.live.messages.of_snapshot", of_snapshot)
    listeners = [world.join(str(number)) for number in range(100)]
    world.channel().write("one")
    assert {listener.text for listener in listeners} == {"one"}
    assert made == [1]


def test_half_a_character(world: World) -> None:
    """A producer that writes half a surrogate pair is not stopped by it."""
    listener = world.join("a")
    with world.channel() as channel:
        channel.write("\ud83d")
        channel.write("\ude00")
    assert listener.text == "\ud83d\ude00"


@pytest.mark.parametrize(
    "trouble", [ClientError({}, "Query"), ReadTimeoutError(endpoint_url="https://x")], ids=str
)
def test_trouble_with_the_table(
    world: World, trouble: Exception, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    """Who makes the text is not stopped by a table that cannot be read; listeners are looked for again."""
    listener = world.join("a")
    world.trouble = trouble
    with world.channel() as channel:
        channel.write("one ")
        world.trouble = None
        world.clock.now += REFRESH_SECONDS
        channel.write("two")
        world.trouble, world.breaks["a"] = trouble, (0, SendOutcome.GONE)
        channel.write("three")
    assert snapshots(listener) == ["one two"]
    assert {line["level"] for line in logged()} == {"WARNING"}


def test_a_producer_that_fails(world: World) -> None:
    """An error of the producer's own goes on, and what was written until then has been said."""
    listener = world.join("a")

    def produce() -> None:
        with world.channel() as channel:
            channel.write("one ")
            channel.write("two")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        produce()
    assert listener.text == "one two"


def test_a_producer_that_begins_again(world: World) -> None:
    """A second producer's text replaces the first one's."""
    listener = world.join("a")
    for text in ("a longer text", "a text"):
        with world.channel() as channel:
            for letter in text:
                channel.write(letter)
                world.clock.now += FLUSH_SECONDS
    assert listener.text == "a text"


def test_nobody_listens(world: World) -> None:
    """Where nobody listens nothing is said, and a silent channel says nothing either."""
    with world.channel() as channel:
        channel.write("one")
    world.join("a")
    with world.channel() as channel:
        channel.write("")
        channel.flush()
    assert world.said == []
