"""Values as text for the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado._cli.format import format_duration, format_fields, sanitize


@pytest.mark.parametrize("text", ["\x1b[2J", "a\rb", "\u202eabc", "\x9b31m", "\x07"])
def test_control_characters_are_replaced(text: str) -> None:
    """Text from documents and services cannot control the terminal."""
    assert "\N{REPLACEMENT CHARACTER}" in sanitize(text)
    assert not set(sanitize(text)) & {"\x1b", "\r", "\u202e", "\x9b", "\x07"}


@given(value=st.text(), other=st.integers())
def test_fields_are_one_line(value: str, other: int) -> None:
    """Fields are one line without tabs, and long values are cut."""
    line = format_fields({"text": value, "words": other})
    assert line.splitlines() in ([line], [])
    assert "\t" not in line
    assert line.startswith("text=")
    assert line.endswith(f" words={other}")
    assert len(line) <= 240


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.25, "0.2 s"), (3, "3 s"), (42.4, "42 s"), (200, "3:20 min"), (7500, "2:05 h")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    """A duration has seconds, minutes, or hours."""
    assert format_duration(seconds) == text
