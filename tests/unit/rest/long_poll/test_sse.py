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
from kinds.registry import KINDS
from rest.long_poll.sse import encode, sequence_of
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


@given(st.integers(0, 999_999_999))
def test_sequence_of(sequence: int) -> None:
    """The id of an event is read as its sequence."""
    assert sequence_of(str(sequence)) == sequence == sequence_of(f" {sequence} ")


@pytest.mark.parametrize(
    "text", [None, "", " ", "x", "-1", "+1", "1.0", "1e3", "0x1", "1 2", "٣", "²", "1_0", "9" * 10]
)
def test_unknown_ids(text: str | None) -> None:
    """Other ids are ignored."""
    assert sequence_of(text) == 0


@given(st.text())
def test_any_id(text: str) -> None:
    """Any id is accepted."""
    assert 0 <= sequence_of(text) < 10**9


# The reader itself: the examples of the specification
# https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
