"""The calculator of what waiting costs, and its advice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.cost import advise, compare, polling_cost

seconds = st.floats(0.1, 100_000)


def test_polling_two_hours_once_a_minute() -> None:
    """Of 121 requests, including the POST, 119 are wasted: 98.3 %."""
    cost = polling_cost(7200, interval=60)
    assert (cost.polls, cost.requests, cost.useful, cost.wasted) == (120, 121, 2, 119)
    assert cost.percent == 98.3


@pytest.mark.parametrize(
    ("base", "cap", "duration", "polls"),
    [(2, 120, 7200, 65), (1, 60, 7200, 125), (2, 120, 2820, 29), (0.5, 30, 45, 7)],
)
def test_backoff_is_counted_by_the_formula(base: float, cap: float, duration: float, polls: int) -> None:
    """It takes as many polls as the sum of min(base × 2^n, cap) needs to reach the duration."""
    count, total = 0, 0.0
    while total < duration:
        total += min(base * 2**count, cap)
        count += 1
    cost = polling_cost(duration, base=base, cap=cap)
    assert (cost.polls, cost.delay) == (count, total - duration)
    assert cost.polls == polls


@given(seconds, st.floats(0.5, 600))
def test_short_polling_learns_of_the_end_within_an_interval(duration: float, interval: float) -> None:
    """The delay is between 0 and the interval."""
    cost = polling_cost(duration, interval)
    assert -1e-5 <= cost.delay <= interval + 1e-5
    assert cost.polls * interval == pytest.approx(duration + cost.delay, abs=1e-5)


@given(seconds, seconds)
def test_requests_are_useful_or_wasted(duration: float, usual: float) -> None:
    """For all strategies: at most two requests are useful, all others are wasted."""
    for cost in compare(duration, usual=usual):
        assert cost.useful + cost.wasted == cost.requests
        assert 1 <= cost.useful <= 2
        assert 0 <= cost.delay <= cost.delay_max + 1e-5


def test_rounding_errors_add_no_poll() -> None:
    """2.1 / 0.3 is 7 polls, although it is 7.000000000000001 in binary."""
    assert polling_cost(2.1, 0.3).polls == 7


@pytest.mark.parametrize("factor", [0.8, 0.9, 1.0, 1.1, 1.2])
def test_server_guided_polling_needs_few_requests(factor: float) -> None:
    """If durations vary by 20 %, jobs of two hours need at most 12 requests, and the end is known within 5 %."""
    cost = polling_cost(7200 * factor, strategy="server_guided", usual=7200)
    assert cost.requests <= 12
    assert cost.delay <= 0.05 * 7200


def test_held_requests_are_counted_by_the_hold() -> None:
    """Two hours are 288 holds of 25 s. A WebSocket is one request, a webhook none."""
    polls = {cost.strategy: cost.polls for cost in compare(7200)}
    strategies = ("long_polling", "sse", "websocket", "webhook")
    assert [polls[strategy] for strategy in strategies] == [288, 288, 1, 0]


@pytest.mark.parametrize(
    "arguments",
    [
        {"duration": 0},
        {"duration": float("nan")},
        {"duration": 10, "interval": 0},
        {"duration": 10, "base": -1},
        {"duration": 10, "interval": 5, "base": 1},
        {"duration": 10, "strategy": "unknown"},
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, Any]) -> None:
    """Numbers that are not positive, an interval with a base, and unknown strategies raise ValueError."""
    with pytest.raises(ValueError):  # noqa: PT011 the message differs
        polling_cost(**arguments)


@pytest.mark.parametrize(
    ("can_receive_http", "needs_updates", "bidirectional", "method"),
    [
        (True, False, False, "webhook"),
        (False, False, False, "backoff"),
        (False, True, False, "sse"),
        (True, True, False, "sse"),
        (False, False, True, "websocket"),
        (False, True, True, "websocket"),
        (True, True, True, "websocket"),
    ],
)
def test_advice_follows_the_decision_tree(
    can_receive_http: bool, needs_updates: bool, bidirectional: bool, method: str
) -> None:
    """WebSocket for both directions, else SSE for updates, else webhook for a public URL, else backoff."""
    advice = advise(can_receive_http, needs_updates, bidirectional, 7200)
    assert advice.method == method == advice.cost.strategy
    assert advice.reason
    assert advice.naive.requests == 121
