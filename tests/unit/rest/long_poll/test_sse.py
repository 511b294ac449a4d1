"""Server-sent events (rest.long_poll.sse)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import events
from core.events import Event
from core.jobs.steps import Step
from kinds.registry import KINDS
from rest.long_poll.sse import Cursor, Entry, encode, merge
from tests.support import sse
from tests.unit.examples import event

OPEN = [(kind.name, name) for kind in KINDS.values() for name in kind.event_names if name not in kind.final_events]
ENDINGS = [
    (kind.name, name, status)
    for kind in KINDS.values()
    for name, status in zip(kind.final_events, ("completed", "failed", "canceled"), strict=True)
]


def logged(sequence: int, kind: str, name: str, **facts: Any) -> Event:
    """An event that is not the last."""
    payload = {"event": name, "sequence": sequence, **facts}
    facts = {"status": "running", "lifecycle": "progress", "body": events.encode(payload)}
    return event(kind=kind, name=name, sequence=sequence, **facts)


def ending(sequence: int, kind: str, name: str, status: str) -> Event:
    """A job's last event."""
    return replace(logged(sequence, kind, name), status=status, lifecycle="ended")


@st.composite
def logs(draw: Any) -> list[Event]:
    """Events from anywhere in a log, none of them the last, with any text in them."""
    first = draw(st.integers(1, 10**6))
    facts = draw(st.lists(st.tuples(st.sampled_from(OPEN), st.text(), st.text()), min_size=1, max_size=8))
    return [
        logged(first + n, *verb, **{"text": text, "x" + key: key}) for n, (verb, text, key) in enumerate(facts)
    ]


@given(logs(), st.text("0123456789", max_size=3))
def test_events(log: list[Event], known: str) -> None:
    """A conforming reader gets each event once, in order, with id, name and payload."""
    received = sse.parse(encode(log), last_event_id=known)
    assert [(each.last_event_id, each.type, each.data) for each in received.events] == [
        (str(each.sequence), each.name, each.body) for each in log
    ]
    assert received.last_event_id == str(log[-1].sequence)


NASTY = [
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    "\u2028",
    "\x85",
    "\0",
    "\ufeff",
    ": ",
    "data: x",
    "\n\nid: 9\n\n",
    "\ud800",
    "ñ👩‍🚀",
]


@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_any_text(text: str) -> None:
    """No text of a payload ends a line or an event, or adds a field."""
    written = encode([logged(3, "document", "document.progressed", text=text, **{f"k{text}": 1})])
    assert written.isascii()
    (received,) = sse.parse(written).events
    assert json.loads(received.data)["text"] == text
    assert (received.last_event_id, received.type) == ("3", "document.progressed")


@pytest.mark.parametrize(("kind", "name", "status"), ENDINGS)
def test_end(kind: str, name: str, status: str) -> None:
    """After a job's last event comes `end` with its status and without an id."""
    last = ending(7, kind, name, status)
    before = logged(6, kind, f"{kind}.progressed")
    _, facts, end = sse.parse(encode([before, last])).events
    assert (facts.type, facts.data) == (last.name, last.body)
    assert (end.type, json.loads(end.data), end.last_event_id) == ("end", {"status": status}, "7")
    assert "id:" not in encode([last]).split("event: end")[1]


@given(logs(), st.booleans())
def test_one_name_for_all(log: list[Event], ended: bool) -> None:
    """With one name, all events have it, and there is no `end`."""
    last = [ending(10**9 - 1, "document", "document.indexed", "completed")] if ended else []
    received = sse.parse(encode([*log, *last], named="message"))
    assert [(each.type, each.data, each.last_event_id) for each in received.events] == [
        ("message", each.body, str(each.sequence)) for each in [*log, *last]
    ]
    assert (received.retry, "event: end" in encode(last, named="message")) == (1000, False)


@pytest.mark.parametrize("log", [[], [event()]], ids=["nothing", "something"])
def test_retry(log: list[Event]) -> None:
    """Clients reconnect after a second, also without events."""
    assert sse.parse(encode(log)).retry == 1000


@given(st.text("0123456789", max_size=3))
def test_no_events(known: str) -> None:
    """Without events nothing is dispatched, and the client's last id stays."""
    received = sse.parse(encode([]), last_event_id=known)
    assert (received.events, received.last_event_id) == ([], known)
    assert received.comments


@given(logs(), st.floats(0, 1))
def test_cut(log: list[Event], place: float) -> None:
    """A stream that is cut anywhere contains whole events only."""
    text = encode(log)
    received = sse.parse(text[: int(place * len(text))])
    assert [each.data for each in received.events] == [each.body for each in log][: len(received.events)]
    assert received.last_event_id == (received.events[-1].last_event_id if received.events else "")


JOB_END = {"status": "completed", "error": {"code": "late", "message": "Late.", "stage": "call"}}


@st.composite
def agent_streams(draw: Any) -> tuple[list[Event], list[Step]]:
    """The log and the steps of a job that has ended, each step after an event that was logged before it."""
    sequences = sorted(draw(st.lists(st.integers(1, 5), max_size=8)))
    texts = draw(st.lists(st.text(max_size=5), min_size=len(sequences), max_size=len(sequences)))
    steps = [
        Step(number, sequence, events.encode({"type": "token", "content": text}))
        for number, (sequence, text) in enumerate(zip(sequences, texts, strict=True), 1)
    ]
    log = [logged(n, "document", "document.progressed") for n in range(1, 6)]
    last = logged(6, "document", "document.indexed", **JOB_END)
    return [*log, replace(last, status="completed", lifecycle="ended")], steps


@given(agent_streams(), st.lists(st.floats(0, 1), max_size=4))
def test_steps_go_on_after_cuts(stream: tuple[list[Event], list[Step]], cuts: list[float]) -> None:
    """However often a stream of events and steps is cut, a client that reconnects gets each once, in order."""
    log, steps = stream
    entries, received, cursor = merge(log, steps), list[str](), Cursor(0)
    for place in [*cuts, 1.0]:
        rest = [one for one in entries if not has(cursor, one)]
        text = encode(rest, after=cursor, has_steps=True)
        got = sse.parse(text[: round(place * len(text))])
        received += [one.data for one in got.events if one.type not in ("done", "end")]
        cursor = max(cursor, Cursor.of(got.last_event_id))
    assert received == [one.body for one in entries]


def has(cursor: Cursor, entry: Entry) -> bool:
    """Whether a client with this cursor has received the entry."""
    return entry.number <= cursor.step if isinstance(entry, Step) else (entry.sequence or 0) <= cursor.sequence


def test_late_events_do_not_hide_steps() -> None:
    """A step that is written after a later event was sent has an id that does not go back."""
    step = Step(4, 2, events.encode({"type": "token", "content": "x"}))
    (received,) = sse.parse(encode([step], after=Cursor(5, 3), has_steps=True)).events
    assert received.last_event_id == "5.4"


def test_done() -> None:
    """The last event of a job with steps is followed by `done` with the job's status and error."""
    last = replace(logged(6, "document", "document.failed", **JOB_END), status="failed", lifecycle="ended")
    received = sse.parse(encode([last], after=Cursor(5, 3), has_steps=True)).events
    assert [each.type for each in received] == ["document.failed", "done", "end"]
    assert json.loads(received[1].data) == {"type": "done", "job_id": last.job_id, **JOB_END}
    assert received[1].last_event_id == "6.3"


@given(st.integers(0, 999_999_999), st.integers(0, 999_999_999))
def test_cursor_of(sequence: int, step: int) -> None:
    """An id is read as a sequence, perhaps with the number of a step."""
    assert Cursor.of(str(sequence)) == Cursor(sequence) == Cursor.of(f" {sequence} ")
    assert Cursor.of(f"{sequence}.{step}") == Cursor(sequence, step)


@pytest.mark.parametrize(
    "text", [None, "", " ", "x", "-1", "+1", "1.", ".1", "1.2.3", "1e3", "0x1", "1 2", "٣", "1.²", "1_0", "9" * 10]
)
def test_unknown_ids(text: str | None) -> None:
    """Other ids are ignored."""
    assert Cursor.of(text) == Cursor(0)


@given(st.text())
def test_any_id(text: str) -> None:
    """Any id is accepted."""
    cursor = Cursor.of(text)
    assert 0 <= min(cursor.sequence, cursor.step) <= max(cursor.sequence, cursor.step) < 10**9


# The reader itself: the examples of the specification
# https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
