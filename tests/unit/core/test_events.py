"""Events (core.events)."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import events
from core.events import Event
from core.jobs import Kind
from kinds.registry import KINDS
from tests.unit.examples import event

any_text = st.text(st.characters(exclude_categories=()))  # lone surrogates too
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(any_text, values, max_size=4))
def test_encode(payload: dict[str, object]) -> None:
    """A payload is decoded as it was encoded, and the bytes are printable ASCII."""
    body = events.encode(payload)
    assert json.loads(body) == payload
    assert all(" " <= character <= "~" for character in body)


def test_bytes_of_a_payload() -> None:
    """The encoding keeps the order, has no spaces, and escapes other characters."""
    payload = {
        "event": "document.indexed",
        "score": 0.1,
        "tiny": 1e-07,
        "large": 1e22,
        "whole": 2.0,
        "line": "a\u2028b\u2029c",
        "emoji": "👩‍🚀",
        "text": "año\t\x00\x7f￿",
        "half": "\ud83d",
        "none": None,
    }
    assert events.encode(payload).encode() == (
        b'{"event":"document.indexed","score":0.1,"tiny":1e-07,"large":1e+22,"whole":2.0,'
        b'"line":"a\\u2028b\\u2029c","emoji":"\\ud83d\\udc69\\u200d\\ud83d\\ude80",'
        b'"text":"a\\u00f1o\\t\\u0000\\u007f\\uffff","half":"\\ud83d","none":null}'
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_invalid_numbers(value: float) -> None:
    """Numbers that JSON does not have are refused."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        events.encode({"score": value})


@given(st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2900, 1, 1)))  # noqa: DTZ001 any moment
def test_timestamp(moment: datetime) -> None:
    """A timestamp is RFC 3339 in UTC with milliseconds."""
    seconds = moment.replace(tzinfo=UTC).timestamp()
    text = events.timestamp(seconds)
    assert len(text) == len("2026-11-29T14:33:00.123Z")
    assert text.endswith("Z")
    assert abs(datetime.fromisoformat(text).timestamp() - seconds) <= 0.001


@given(st.tuples(st.floats(0, 4e9), st.floats(0, 4e9)))
def test_timestamps_compare_as_text(moments: tuple[float, float]) -> None:
    """A later timestamp is never a smaller string: the index compares strings."""
    earlier, later = sorted(moments)
    assert events.timestamp(earlier) <= events.timestamp(later)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_failures(kind: Kind) -> None:
    """Of the events of jobs, only failures go to the alerts topic."""
    assert [name for name in kind.event_names if events.is_failure(name)] == [f"{kind.name}.failed"]


@pytest.mark.parametrize(
    ("lifecycle", "status", "is_last", "final_status"),
    [
        ("submitted", "queued", False, None),
        ("progress", "running", False, None),
        ("progress", "queued", False, None),
        ("ended", "completed", True, "completed"),
        ("ended", "failed", True, "failed"),
        ("ended", "canceled", True, "canceled"),
        (None, None, False, None),
    ],
)
def test_last_event(lifecycle: str | None, status: str | None, is_last: bool, final_status: str | None) -> None:
    """An event ends its job by its lifecycle, whatever its name is. Events of owners end no job."""
    subject = event(name="anything.done", lifecycle=lifecycle, status=status)
    assert (subject.is_last, subject.final_status) == (is_last, final_status)


def test_of_item() -> None:
    """An event is read from its item, with its sequence as an integer."""
    subject = event(sequence=7)
    row = asdict(subject)
    assert Event.of({**row, "sequence": Decimal(7), "pk": "JOB#1", "expires_at": Decimal(9)}) == subject
    assert type(Event.of(row).sequence) is int


def test_owner_events() -> None:
    """The events of owners belong to no job. `endpoint.disabled` goes to the alerts topic."""
    assert events.OWNER_EVENTS == ("endpoint.disabled", "ping")
    assert events.OWNER_KIND not in KINDS
    assert [name for name in events.OWNER_EVENTS if events.is_failure(name)] == ["endpoint.disabled"]
