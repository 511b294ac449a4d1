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
# Around the sizes where a message is full, and where an event fits in none.
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


def offset(packed: list[str]) -> list[Any]:
    assert all(json.loads(text)["type"] == "events" for text in packed)
    return [payload for text in packed for payload in json.loads(text)["events"]]


@given(logs())
def test_every_event_is_told_once_and_in_order(log: list[Event]) -> None:
    """What was packed comes out again, in order; what fits in no message has its envelope, and says so."""
    heard = offset(messages.of_events(log))
    assert [payload["sequence"] for payload in heard] == [each.sequence for each in log]
    for payload, each in zip(heard, log, strict=True):
        whole = each.payload
        if "truncated" in payload:
            assert payload == {key: whole[key] for key in ENVELOPE} | {"truncated": True}
        else:
            assert payload == whole


@given(logs())
def test_sizes_of_messages(log: list[Event]) -> None:
    """A message is one frame at most, unless it has but one event; none is larger than the gateway takes."""
    for text in messages.of_events(log):
        size = len(text.encode())
        assert size <= (FRAME_BYTES if len(json.loads(text)["events"]) > 1 else MESSAGE_BYTES)


@given(logs())
def test_no_more_messages_than_it_takes(log: list[Event]) -> None:
    """What is in two messages would not have gone into one."""
    packed = messages.of_events(log)
    for one, next_one in itertools.pairwise(packed):
        first = json.dumps(json.loads(next_one)["events"][0], separators=(",", ":"))
        assert len(one) + 1 + len(first) >= FRAME_BYTES


@pytest.mark.parametrize(("spare", "truncated"), [(0, False), (-1, True)])
def test_the_largest_event(spare: int, truncated: bool) -> None:
    """An event goes out whole as long as its message is no byte too large."""
    around = len(messages.of_events([sized(1, 0)])[0])
    (text,) = messages.of_events([sized(1, MESSAGE_BYTES - around - spare)])
    assert ("truncated" in json.loads(text)["events"][0]) is truncated
    assert truncated or len(text) == MESSAGE_BYTES


def test_nothing_to_tell() -> None:
    """No event, no message."""
    assert messages.of_events([]) == []


def test_a_body_is_told_as_it_was_stored() -> None:
    """The bytes of an event's body are in the message: numbers and order of keys stay as they were."""
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
    """Pieces make up the text, and each of them is one frame as a delta, and none is empty beside others."""
    pieces = messages.pieces(text)
    assert "".join(pieces) == text
    assert len(pieces) == 1 or all(pieces)
    for piece in pieces:
        delta = messages.of_delta(JOB_ID, 10**9, piece)
        assert len(delta.encode()) <= FRAME_BYTES
        assert json.loads(delta) == {"type": "delta", "job_id": JOB_ID, "index": 10**9, "text": piece}


@given(texts)
def test_snapshots(text: str) -> None:
    """A snapshot's parts are numbered from 0, say how many they are, and make up the text; one is there always."""
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
def test_whatever_is_said_can_be_sent(text: str) -> None:
    """Even half a surrogate pair, which UTF-8 has no bytes for, is sent and heard as it is."""
    assert json.loads(messages.about("x", text=text).encode().decode()) == {"type": "x", "text": text}


def test_other_scripts_take_no_more_room() -> None:
    """Texts are not escaped: three bytes of UTF-8 stay three."""
    assert len(messages.about("x", text="語" * 100).encode()) < 400


def test_small_messages() -> None:
    """What has no contents is written once and for all, and an error says what and whom it is about."""
    assert [json.loads(text) for text in (messages.PING, messages.PONG)] == [{"type": "ping"}, {"type": "pong"}]
    said = json.loads(messages.of_error("not_found", "No.", job_id=JOB_ID))
    assert said == {"type": "error", "code": "not_found", "message": "No.", "job_id": JOB_ID}
