"""Values as text for the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado._cli.format import format_cost, format_duration, format_fields, format_usage, sanitize


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


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (0.000041, "0.000041 USD"),
        (0.1 + 0.2, "0.3 USD"),
        (0.00123456, "0.00123 USD"),
        (12.3456, "12.35 USD"),
        (1234.5, "1234.5 USD"),
        (20, "20 USD"),
        (0, "0 USD"),
        (None, "cost unknown"),
    ],
)
def test_costs_have_three_digits(usd: float | None, text: str) -> None:
    """A cost has three significant digits, or cents, without an exponent and without zeros at the end."""
    assert format_cost(usd) == text


@given(st.floats())
def test_any_cost_can_be_shown(usd: float) -> None:
    """The service may send any number."""
    assert format_cost(usd, is_limit=True).startswith("up to ")


def test_usage_has_calls_tokens_and_cost() -> None:
    """Calls are counted for a job, not for a single answer."""
    usage = {"input_tokens": 310, "output_tokens": 95, "cost_usd": 0.000041}
    assert format_usage(usage) == "310 + 95 tokens, 0.000041 USD"
    assert format_usage({**usage, "calls": 1}) == "1 call, 310 + 95 tokens, 0.000041 USD"
    assert format_usage({**usage, "calls": 2, "cost_estimated": True}).startswith(
        "2 calls, 310 + 95 tokens, up to "
    )
