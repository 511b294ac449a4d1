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

OPEN = [(kind.name, name) for kind in KINDS.values() for name in kind.names if name not in kind.final_names]
ENDINGS = [
    (kind.name, name, status)
    for kind in KINDS.values()
    for name, status in zip(kind.final_names, ("completed", "failed", "canceled"), strict=True)
]


def logged(sequence: int, kind: str, name: str, **facts: Any) -> Event:
    """An event that ends nothing."""
    payload = {"event": name, "sequence": sequence, **facts}
    told = {"status": "running", "lifecycle": "progress", "body": events.encode(payload)}
    return event(kind=kind, name=name, sequence=sequence, **told)


def ending(sequence: int, kind: str, name: str, status: str) -> Event:
    """A job's last event."""
    return replace(logged(sequence, kind, name), status=status, lifecycle="ended")


@st.composite
def logs(draw: Any) -> list[Event]:
    """Any events that do not end a job, from anywhere in a log, with any text in them."""
    first = draw(st.integers(1, 10**6))
    facts = draw(st.lists(st.tuples(st.sampled_from(OPEN), st.text(), st.text()), min_size=1, max_size=8))
    return [
        logged(first + n, *verb, **{"text": text, "x" + key: key}) for n, (verb, text, key) in enumerate(facts)
    ]


@given(logs(), st.text("0123456789", max_size=3))
def test_what_is_written_is_heard(log: list[Event], known: str) -> None:
    """A reader after the specification hears each event once, in order: number, name and payload, byte by byte."""
    heard = sse.parse(encode(log), last_event_id=known)
    assert [(each.last_event_id, each.type, each.data) for each in heard.events] == [
        (str(each.sequence), each.name, each.body) for each in log
    ]
    assert heard.last_event_id == str(log[-1].sequence)


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
def test_no_text_breaks_out(text: str) -> None:
    """No text of a caller ends a line or an event, or becomes a field of the stream."""
    written = encode([logged(3, "document", "document.progressed", text=text, **{f"k{text}": 1})])
    assert written.isascii()
    (heard,) = sse.parse(written).events
    assert json.loads(heard.data)["text"] == text
    assert (heard.last_event_id, heard.type) == ("3", "document.progressed")


@pytest.mark.parametrize(("kind", "name", "status"), ENDINGS)
def test_end(kind: str, name: str, status: str) -> None:
    """After a job's last event comes `end` with its status, without a number: the last event stays the last."""
    last = ending(7, kind, name, status)
    before = logged(6, kind, f"{kind}.progressed")
    _, told, end = sse.parse(encode([before, last])).events
    assert (told.type, told.data) == (last.name, last.body)
    assert (end.type, json.loads(end.data), end.last_event_id) == ("end", {"status": status}, "7")
    assert "id:" not in encode([last]).split("event: end")[1]


@pytest.mark.parametrize(("kind", "name"), OPEN)
def test_no_end(kind: str, name: str) -> None:
    """No other event of any kind ends anything, and an ending ends only where it is the last."""
    heard = sse.parse(encode([logged(1, kind, name)])).events
    assert [each.type for each in heard] == [name]


@given(logs(), st.booleans())
def test_one_name_for_all(log: list[Event], ended: bool) -> None:
    """Where one name was asked for all events have it, the last one too, and no `end` comes after that."""
    last = [ending(10**9 - 1, "document", "document.indexed", "completed")] if ended else []
    heard = sse.parse(encode([*log, *last], named="message"))
    assert [(each.type, each.data, each.last_event_id) for each in heard.events] == [
        ("message", each.body, str(each.sequence)) for each in [*log, *last]
    ]
    assert (heard.retry, "event: end" in encode(last, named="message")) == (1000, False)


@pytest.mark.parametrize("log", [[], [event()]], ids=["nothing", "something"])
def test_retry(log: list[Event]) -> None:
    """A client is to come back after a second, also where nothing was told."""
    assert sse.parse(encode(log)).retry == 1000


@given(st.text("0123456789", max_size=3))
def test_nothing(known: str) -> None:
    """Where nothing has happened nothing is dispatched, and what the client knows stays."""
    heard = sse.parse(encode([]), last_event_id=known)
    assert (heard.events, heard.last_event_id) == ([], known)
    assert heard.comments


@given(logs(), st.floats(0, 1))
def test_cut(log: list[Event], place: float) -> None:
    """A stream that is cut anywhere has told whole events alone, and the client knows which was the last."""
    text = encode(log)
    heard = sse.parse(text[: int(place * len(text))])
    assert [each.data for each in heard.events] == [each.body for each in log][: len(heard.events)]
    assert heard.last_event_id == (heard.events[-1].last_event_id if heard.events else "")


@given(st.integers(0, 999_999_999))
def test_numbers(sequence: int) -> None:
    """The number that was sent as an id is read back."""
    assert sequence_of(str(sequence)) == sequence == sequence_of(f" {sequence} ")


@pytest.mark.parametrize(
    "text", [None, "", " ", "x", "-1", "+1", "1.0", "1e3", "0x1", "1 2", "٣", "²", "1_0", "9" * 10]
)
def test_no_numbers(text: str | None) -> None:
    """What is no number of an event is as if nothing had been sent."""
    assert sequence_of(text) == 0


@given(st.text())
def test_any_id(text: str) -> None:
    """A client may send whatever it likes."""
    assert 0 <= sequence_of(text) < 10**9


# The reader itself: the examples of the specification
# https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation


@pytest.mark.parametrize(
    ("text", "heard"),
    [
        ("data: YHOO\ndata: +2\ndata: 10\n\n", [("message", "YHOO\n+2\n10", "")]),
        (
            ": a\n\ndata: first\nid: 1\n\ndata:second\nid\n\ndata:  third",
            [("message", "first", "1"), ("message", "second", "")],
        ),
        ("data\n\ndata\ndata\n\ndata:", [("message", "", ""), ("message", "\n", "")]),
        ("data:test\n\ndata: test\n\n", [("message", "test", ""), ("message", "test", "")]),
        ("\ufeffevent: add\rdata: 1\r\r", [("add", "1", "")]),
        ("event: add\r\n\r\ndata: 1\r\n\r\n", [("message", "1", "")]),
        ("id: 1\0\nretry: x\nother: y\ndata: 1\n\n", [("message", "1", "")]),
    ],
)
def test_the_reader(text: str, heard: list[tuple[str, str, str]]) -> None:
    """The reader that these tests hear with reads what the specification gives as examples."""
    assert [(each.type, each.data, each.last_event_id) for each in sse.parse(text).events] == heard
