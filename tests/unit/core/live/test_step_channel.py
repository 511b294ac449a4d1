"""Steps of jobs on their way to WebSockets and to the table (core.live.step_channel)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from core import events
from core.errors import JobClosed
from core.jobs.job import Job
from core.jobs.steps import TOKEN, Step
from core.live.channel import FLUSH_SECONDS, REFRESH_SECONDS
from core.live.sockets import SendOutcome
from core.live.step_channel import MAX_PIECES, PIECE_SECONDS, StepChannel, encode, last_received
from core.live.subscriptions import HANDSHAKE_SECONDS, Subscribers, Subscription
from tests.unit.examples import FakeClock, job

Payload = dict[str, Any]


@dataclass
class FakeLive:
    """A job's steps, its subscriptions and their sockets, with a clock."""

    job: Job = field(default_factory=job)
    clock: FakeClock = field(default_factory=lambda: FakeClock(0.0))
    steps: list[Step] = field(default_factory=list)
    rows: dict[str, Subscription] = field(default_factory=dict)
    received: dict[str, list[Payload]] = field(default_factory=dict)
    outcomes: dict[str, SendOutcome] = field(default_factory=dict)
    error: Exception | None = None

    def channel(self) -> StepChannel:
        return StepChannel(self.job, self, self, self, clock=self.clock, now=self.clock)  # type: ignore[arg-type]

    # the table

    def append(self, job: Job, number: int, payload: Mapping[str, Any]) -> Step:
        assert number == len(self.steps) + 1
        self.steps.append(Step(number, job.sequence, events.encode(payload)))
        return self.steps[-1]

    def read(self, job_id: str, *, after: int = 0) -> list[Step]:
        return self.steps[after:]

    # subscriptions

    def join(self, name: str, *, connected_at: int = -100) -> None:
        self.received[name] = []
        self.rows[name] = Subscription(
            connection_id=name,
            job_id=self.job.job_id,
            after=0,
            request_id=f"request-{name}",
            connected_at=connected_at,
            steps=0,
        )

    def subscribers(self, job_id: str) -> Subscribers:
        if self.error:
            raise self.error
        return Subscribers(0, [], list(self.rows.values()))

    def save_steps(self, subscription: Subscription, number: int) -> None:
        name = subscription.connection_id
        self.rows[name] = replace(self.rows[name], steps=number, active=True)

    def delete_connection(self, name: str) -> None:
        del self.rows[name]

    # sockets

    def send_all(self, messages: Mapping[str, Sequence[str]]) -> dict[str, SendOutcome]:
        return {name: self._send(name, texts) for name, texts in messages.items()}

    def _send(self, name: str, texts: Sequence[str]) -> SendOutcome:
        outcome = self.outcomes.get(name, SendOutcome.SENT)
        if outcome is SendOutcome.SENT:
            self.received[name] += [json.loads(text) for text in texts]
        return outcome

    def end(self) -> None:
        """What `push` does after the job's end."""
        for name, row in self.rows.items():
            rest = [step.payload for step in self.steps if step.number > last_received(row, self.steps)]
            self.received[name] += [json.loads(text) for text in encode(self.job.job_id, rest)]


def joined(messages: Sequence[Mapping[str, Any]]) -> list[Payload]:
    """The messages without the job's id, with successive texts as one."""
    merged: list[Payload] = []
    for message in messages:
        one = {key: value for key, value in message.items() if key != "job_id"}
        if one["type"] == TOKEN and merged and merged[-1]["type"] == TOKEN:
            merged[-1] = {"type": TOKEN, "content": merged[-1]["content"] + one["content"]}
        else:
            merged.append(one)
    return merged


def thought(number: int) -> Payload:
    return {"type": "thinking", "content": str(number)}


@st.composite
def scripts(draw: Any) -> list[tuple[str, Any]]:
    """What a producer does, while clients come and time passes, in attempts that end in order."""
    actions = st.one_of(
        st.tuples(st.just("write"), st.integers(0, 9)),
        st.tuples(st.just("text"), st.text(min_size=1, max_size=4)),
        st.tuples(st.just("pass"), st.sampled_from([FLUSH_SECONDS / 2, FLUSH_SECONDS, REFRESH_SECONDS])),
        st.tuples(st.just("join"), st.none()),
        st.tuples(st.just("attempt"), st.none()),
    )
    found: list[tuple[str, Any]] = draw(st.lists(actions, max_size=25))
    return found


@given(scripts())
@settings(max_examples=150)
def test_nothing_is_lost_or_repeated(script: list[tuple[str, Any]]) -> None:
    """Whenever a client comes, it gets every step and all text once, in order; and so has the table."""
    live, told = FakeLive(), list[Payload]()
    live.join("first")
    channel = live.channel()
    for number, (action, value) in enumerate(script):
        if action == "write":
            channel.write(thought(value))
            told.append(thought(value))
        elif action == "text":
            channel.write_text(value)
            told.append({"type": TOKEN, "content": value})
        elif action == "pass":
            live.clock.now += value
        elif action == "join":
            live.join(f"client {number}")
        else:
            channel.__exit__(None, None, None)
            channel = live.channel()
    channel.__exit__(None, None, None)
    live.join("last")
    live.end()
    assert {name: joined(messages) for name, messages in live.received.items()} == dict.fromkeys(
        live.received, joined(told)
    )
    assert joined([step.payload for step in live.steps]) == joined(told)


@given(st.lists(st.integers(0, 9), max_size=5), st.integers(0, 5), st.booleans())
def test_killed_producer(numbers: list[int], killed_after: int, text: bool) -> None:
    """After a producer was killed, the next one sends a client only what it has not received."""
    live = FakeLive()
    live.join("client")
    channel = live.channel()
    for count, number in enumerate(numbers):
        if count == killed_after:
            if text:
                channel.write_text("so far")
                live.clock.now += PIECE_SECONDS
                channel.write_text(" and")
            channel = live.channel()
        channel.write(thought(number))
        live.clock.now += REFRESH_SECONDS
    channel.__exit__(None, None, None)
    live.end()
    thoughts = [message["content"] for message in live.received["client"] if message["type"] == "thinking"]
    assert thoughts == [str(number) for number in numbers]
    said = "".join(message["content"] for message in live.received["client"] if message["type"] == TOKEN)
    assert said == ("so far and" if text and killed_after < len(numbers) else "")


def test_text_arrives_as_it_comes() -> None:
    """A socket gets text within FLUSH_SECONDS, before it is stored."""
    live = FakeLive()
    live.join("client")
    channel = live.channel()
    channel.write_text("a")
    channel.write_text("b")
    assert [message["content"] for message in live.received["client"]] == ["a"]
    live.clock.now += FLUSH_SECONDS
    channel.write_text("c")
    assert [message["content"] for message in live.received["client"]] == ["a", "bc"]
    assert live.steps == []


def test_pieces() -> None:
    """Stored text is at most a piece a second, and with the end of each attempt at most 200 of a job."""
    live = FakeLive()
    channel = live.channel()
    for _ in range(4 * (MAX_PIECES + 50)):
        channel.write_text("x")
        live.clock.now += PIECE_SECONDS / 4
    assert len(live.steps) == MAX_PIECES
    assert {len(step.payload["content"]) for step in live.steps} <= {4, 5}
    channel.__exit__(None, None, None)
    with live.channel() as again:
        again.write_text("y")
        live.clock.now += PIECE_SECONDS
        again.write_text("z")
    assert [step.payload["content"] for step in live.steps[-1:]] == ["yz"]
    assert len(live.steps) == MAX_PIECES + 2 <= 200


def test_unreachable_clients() -> None:
    """A client that cannot be reached gets all later; one that has gone is deleted, unless it is connecting."""
    live = FakeLive()
    for name, at in (("failing", -100), ("gone", -100), ("new", 0)):
        live.join(name, connected_at=at)
    live.outcomes = {"failing": SendOutcome.FAILED, "gone": SendOutcome.GONE, "new": SendOutcome.GONE}
    channel = live.channel()
    channel.write(thought(1))
    assert set(live.rows) == {"failing", "new"}
    live.outcomes, live.clock.now = {}, HANDSHAKE_SECONDS
    channel.write(thought(2))
    assert [m["content"] for m in live.received["failing"]] == ["1", "2"]
    assert [m["content"] for m in live.received["new"]] == ["1", "2"]


def test_the_work_goes_on_without_listeners() -> None:
    """If subscribers cannot be read, the steps are still written."""
    live = FakeLive(error=ClientError({"Error": {"Code": "ThrottlingException"}}, "Query"))
    with live.channel() as channel:
        channel.write(thought(1))
        channel.write_text("text")
    assert len(live.steps) == 2


def test_refresh() -> None:
    """Between steps, new clients get what was before as soon as the producer looks."""
    live = FakeLive()
    channel = live.channel()
    channel.write(thought(1))
    live.join("late")
    live.clock.now += REFRESH_SECONDS
    channel.refresh()
    assert joined(live.received["late"]) == [thought(1)]


def test_closed_job() -> None:
    """After the job's end no text is stored."""
    live = FakeLive()
    channel = live.channel()
    channel.write_text("x")
    channel.__exit__(JobClosed, JobClosed("the job is canceled"), None)
    assert live.steps == []


def test_long_texts() -> None:
    """A text that is larger than a frame is sent in several messages."""
    encoded = encode("job_1", [{"type": TOKEN, "content": "x" * 100_000}])
    assert len(encoded) > 3
    assert joined([json.loads(text) for text in encoded]) == [{"type": TOKEN, "content": "x" * 100_000}]
