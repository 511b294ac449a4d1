from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import events

any_text = st.text(st.characters(exclude_categories=()))  # lone surrogates too
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(any_text, values, max_size=4))
def test_encoding_loses_nothing(payload: dict[str, object]) -> None:
    """Whatever a payload holds comes back from its bytes, and all of them are printable ASCII."""
    body = events.encode(payload)
    assert json.loads(body) == payload
    assert all(" " <= character <= "~" for character in body)


def test_golden_payload() -> None:
    """The bytes of a payload: order kept, no spaces, floats as Python writes them, the rest escaped."""
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
def test_no_json_for_it(value: float) -> None:
    """A number that JSON does not know is refused rather than sent to who cannot read it."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        events.encode({"score": value})


@given(st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2900, 1, 1)))  # noqa: DTZ001 any moment
def test_timestamp(moment: datetime) -> None:
    """A timestamp is RFC 3339 in UTC with three decimals, and reads back to the millisecond."""
    seconds = moment.replace(tzinfo=UTC).timestamp()
    text = events.timestamp(seconds)
    assert len(text) == len("2026-11-29T14:33:00.123Z")
    assert text.endswith("Z")
    assert abs(datetime.fromisoformat(text).timestamp() - seconds) <= 0.001


@given(st.tuples(st.floats(0, 4e9), st.floats(0, 4e9)))
def test_timestamps_compare_as_text(moments: tuple[float, float]) -> None:
    """Deadlines are compared in the index as text, so a later time is never a smaller text."""
    earlier, later = sorted(moments)
    assert events.timestamp(earlier) <= events.timestamp(later)


def test_names() -> None:
    """A document's job logs its steps, its two other endings, retries and progress."""
    assert set(events.names("document")) == {
        "document.uploaded",
        "document.started",
        "document.chunked",
        "document.embedded",
        "document.indexed",
        "document.failed",
        "document.canceled",
        "document.retried",
        "document.progressed",
    }


def test_names_of_a_replay() -> None:
    """A replay logs that it was requested, what began and ended it, retries and progress."""
    assert events.names("replay") == (
        "replay.requested",
        "replay.started",
        "replay.completed",
        "replay.failed",
        "replay.canceled",
        "replay.retried",
        "replay.progressed",
    )


def test_endings_of_a_replay() -> None:
    """A replay's endings have the names of its final statuses, and each is among its events."""
    assert events.final_names("replay") == ("replay.completed", "replay.failed", "replay.canceled")
    assert set(events.final_names("replay")) < set(events.names("replay"))


def test_endings() -> None:
    """Three events end a job, and only the failure is one that people are alerted of."""
    assert events.final_names("document") == ("document.indexed", "document.failed", "document.canceled")
    assert [name for name in events.names("document") if events.is_failure(name)] == ["document.failed"]
    assert events.ending("completion", "completed") == "completed"


def test_owner_events() -> None:
    """An owner's two events are no job's, and of a disabled endpoint people are alerted."""
    assert events.OWNER_EVENTS == ("endpoint.disabled", "ping")
    assert events.OWNER_KIND not in events.KINDS
    assert [name for name in events.OWNER_EVENTS if events.is_failure(name)] == ["endpoint.disabled"]
