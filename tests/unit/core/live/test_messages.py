"""Messages of WebSockets (core.live.messages)."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import events, ids
from core.events import Event
from core.live import messages
from core.live.messages import FRAME_BYTES, MESSAGE_BYTES
from tests.unit.examples import event

JOB_ID = ids.new("job")
ENVELOPE = ["event", "event_id", "job_id", "sequence", "timestamp"]
# Sizes around that of a full message, and of an event that is too large.
SIZES = st.one_of(
    st.integers(0, 300),
    st.integers(FRAME_BYTES // 2 - 220, FRAME_BYTES // 2 - 140),
    st.integers(FRAME_BYTES - 300, FRAME_BYTES),
    st.integers(MESSAGE_BYTES - 300, MESSAGE_BYTES + 300),
)


def sized(sequence: int, size: int, text: str = "") -> Event:
    facts = {"event_id": ids.new("evt"), "job_id": JOB_ID, "sequence": sequence, "timestamp": "now"}
    payload = {"event": "document.progressed", **facts, "note": text + "x" * size}
    return event(**facts, name="document.progressed", body=events.encode(payload))


@st.composite
def logs(draw: Any) -> list[Event]:
    facts = draw(st.lists(st.tuples(SIZES, st.text(max_size=20)), max_size=8))
    return [sized(number, *each) for number, each in enumerate(facts, 1)]


def unpacked(packed: list[str]) -> list[Any]:
    assert all(json.loads(text)["type"] == "events" for text in packed)
    return [payload for text in packed for payload in json.loads(text)["events"]]


@given(logs())
def test_events(log: list[Event]) -> None:
    """Messages contain all events once, in order. An event that is too large is reduced to its envelope."""
    received = unpacked(messages.of_events(log))
    assert [payload["sequence"] for payload in received] == [each.sequence for each in log]
    for payload, each in zip(received, log, strict=True):
        payload_before = each.payload
        if "truncated" in payload:
            assert payload == {key: payload_before[key] for key in ENVELOPE} | {"truncated": True}
        else:
            assert payload == payload_before


@given(logs())
def test_sizes_of_messages(log: list[Event]) -> None:
    """A message is at most one frame, or has one event. None is larger than API Gateway accepts."""
    for text in messages.of_events(log):
        size = len(text.encode())
        assert size <= (FRAME_BYTES if len(json.loads(text)["events"]) > 1 else MESSAGE_BYTES)


@given(logs())
def test_number_of_messages(log: list[Event]) -> None:
    """The events of two successive messages would not fit into one."""
    packed = messages.of_events(log)
    for one, next_one in itertools.pairwise(packed):
        first = json.dumps(json.loads(next_one)["events"][0], separators=(",", ":"))
        assert len(one) + 1 + len(first) >= FRAME_BYTES


@pytest.mark.parametrize(("spare", "truncated"), [(0, False), (-1, True)])
def test_largest_event(spare: int, truncated: bool) -> None:
    """An event is complete up to the maximum size of a message."""
    around = len(messages.of_events([sized(1, 0)])[0])
    (text,) = messages.of_events([sized(1, MESSAGE_BYTES - around - spare)])
    assert ("truncated" in json.loads(text)["events"][0]) is truncated
    assert truncated or len(text) == MESSAGE_BYTES


def test_no_events() -> None:
    """Without events there is no message."""
    assert messages.of_events([]) == []


def test_body_is_unchanged() -> None:
    """The stored bytes of an event's body are in the message."""
    body = '{"z":1.0,"a":1e3,"text":"a\\u2028\\ud83d\\ude00"}'
    assert messages.of_events([event(body=body)]) == [f'{{"type":"events","events":[{body}]}}']


# ── texts ────────────────────────────────────────────────────────────────────────────────────────────────────

NASTY = [
    '"' * 40_000,
    "\0" * 20_000,
    "\\" * 40_000,
    "👩‍🚀" * 9_000,
    "ñ" * 40_000,
    "\u2028" * 20_000,
    "\ud800" * 9_000,
]
texts = st.one_of(
    st.text(),
    st.builds(
        lambda part, times: part * times,
        st.text(st.characters(exclude_categories=()), min_size=1, max_size=6),
        st.integers(0, 30_000),
    ),
    st.sampled_from(NASTY),
)


@given(texts)
def test_pieces(text: str) -> None:
    """Pieces make up the text, each fits into a frame as a delta, and none of several is empty."""
    pieces = messages.pieces(text)
    assert "".join(pieces) == text
    assert len(pieces) == 1 or all(pieces)
    for piece in pieces:
        delta = messages.of_delta(JOB_ID, 10**9, piece)
        assert len(delta.encode()) <= FRAME_BYTES
        assert json.loads(delta) == {"type": "delta", "job_id": JOB_ID, "index": 10**9, "text": piece}


@given(texts)
def test_snapshots(text: str) -> None:
    """The parts of a snapshot are numbered from 0 and make up the text. There is at least one."""
    parts = [json.loads(part) for part in messages.of_snapshot(JOB_ID, 7, text)]
    assert "".join(part.pop("text") for part in parts) == text
    assert parts == [
        {"type": "snapshot", "job_id": JOB_ID, "index": 7, "part": number, "parts": len(parts)}
        for number in range(len(parts) or 1)
    ]


@given(texts)
def test_parts_fit_into_frames(text: str) -> None:
    """No part of a snapshot is larger than a frame."""
    assert all(len(part.encode()) <= FRAME_BYTES for part in messages.of_snapshot(JOB_ID, 10**9, text))


@given(st.text(st.characters(exclude_categories=())))
def test_lone_surrogates(text: str) -> None:
    """Lone surrogates are escaped, so that every message has UTF-8 bytes."""
    assert json.loads(messages.of_type("x", text=text).encode().decode()) == {"type": "x", "text": text}


def test_text_is_not_escaped() -> None:
    """Text in other scripts is not escaped."""
    assert len(messages.of_type("x", text="語" * 100).encode()) < 400


def test_small_messages() -> None:
    """Ping and pong are constants, and an error contains its code, message and facts."""
    assert [json.loads(text) for text in (messages.PING, messages.PONG)] == [{"type": "ping"}, {"type": "pong"}]
    message = json.loads(messages.of_error("not_found", "No.", job_id=JOB_ID))
    assert message == {"type": "error", "code": "not_found", "message": "No.", "job_id": JOB_ID}
