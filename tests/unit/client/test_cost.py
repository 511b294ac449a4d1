"""What waiting costs, and the loop that everybody copies."""

from __future__ import annotations

import email.message
import io
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado import cost
from recado.cost import PollFailed, advise, compare, look_times, poll_with_backoff, polling_cost

seconds = st.floats(0.1, 100_000)


def test_two_hours_once_a_minute() -> None:
    """7,200 s at 60 s: 120 polls, 121 requests with the POST, of which 119 say nothing: 98.3 %."""
    known = polling_cost(7200, interval=60)
    assert (known.polls, known.requests, known.useful, known.wasted) == (120, 121, 2, 119)
    assert known.percent == 98.3


def test_forty_seven_minutes_twice_a_minute() -> None:
    """47 minutes at 30 s: 94 polls."""
    assert polling_cost(47 * 60, 30).polls == 94


def test_backoff_looks_at_known_times() -> None:
    """Base 1 and cap 60 look after 1, 3, 7, 15, 31, 63, 123 and 183 s."""
    assert look_times(1, 60, count=8) == [1, 3, 7, 15, 31, 63, 123, 183]


@pytest.mark.parametrize(
    ("base", "cap", "duration"), [(2, 120, 7200), (1, 60, 7200), (2, 120, 2820), (0.5, 30, 45)]
)
def test_backoff_is_counted_by_the_formula(base: float, cap: float, duration: float) -> None:
    """As many looks as it takes for the sum of min(base × 2^n, cap) to reach the duration."""
    count, total = 0, 0.0
    while total < duration:
        total += min(base * 2**count, cap)
        count += 1
    known = polling_cost(duration, base=base, cap=cap)
    assert (known.polls, known.delay) == (count, total - duration)


def test_two_hours_backing_off() -> None:
    """Base 2 and cap 120 need 65 looks for two hours, base 1 and cap 60 need 125."""
    assert polling_cost(7200, base=2, cap=120).polls == 65
    assert polling_cost(7200, base=1, cap=60).polls == 125


@given(seconds, st.floats(0.5, 600))
def test_the_end_is_noticed_within_an_interval(duration: float, interval: float) -> None:
    """Short polling notices the end at its next look: never before it, at most one interval after."""
    known = polling_cost(duration, interval)
    assert -1e-5 <= known.delay <= interval + 1e-5
    assert known.polls * interval == pytest.approx(duration + known.delay, abs=1e-5)


@given(seconds, seconds)
def test_requests_are_useful_or_wasted(duration: float, usual: float) -> None:
    """Of every way of waiting: useful and wasted make all, and nothing is useful but the POST and the end."""
    for known in compare(duration, usual=usual):
        assert known.useful + known.wasted == known.requests
        assert 1 <= known.useful <= 2
        assert 0 <= known.delay <= known.delay_max + 1e-5


def test_fractions_add_no_look() -> None:
    """2.1 / 0.3 is 7 looks, though it is 7.000000000000001 in binary."""
    assert polling_cost(2.1, 0.3).polls == 7


@pytest.mark.parametrize("length", [0.8, 0.9, 1.0, 1.1, 1.2])
def test_a_guided_client_asks_little(length: float) -> None:
    """For a kind that varies by 20 % two hours take at most 12 requests, and the end is known within 5 %."""
    known = polling_cost(7200 * length, strategy="server_guided", usual=7200)
    assert known.requests <= 12
    assert known.delay <= 0.05 * 7200


def test_held_requests_are_counted_by_the_hold() -> None:
    """Two hours in holds of 25 s are 288; a WebSocket is one connection, a webhook no request at all."""
    polls = {known.strategy: known.polls for known in compare(7200)}
    assert [polls[way] for way in ("long_polling", "sse", "websocket", "webhook")] == [288, 288, 1, 0]


@pytest.mark.parametrize(
    "arguments",
    [
        {"duration": 0},
        {"duration": float("nan")},
        {"duration": 10, "interval": 0},
        {"duration": 10, "base": -1},
        {"duration": 10, "interval": 5, "base": 1},
        {"duration": 10, "strategy": "pigeon"},
    ],
)
def test_nonsense_is_refused(arguments: dict[str, Any]) -> None:
    """A duration of nothing, an interval of 0, two ways at once and unknown ways are errors."""
    with pytest.raises(ValueError):  # noqa: PT011 what it says differs
        polling_cost(**arguments)


# ── advice ───────────────────────────────────────────────────────────────────────────────────────────────


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
def test_the_decision_tree(can_receive_http: bool, needs_updates: bool, bidirectional: bool, method: str) -> None:
    """A public URL: webhook; none: backoff; updates one way: SSE; both ways: WebSocket. With reason and cost."""
    advice = advise(can_receive_http, needs_updates, bidirectional, 7200)
    assert advice.method == method == advice.cost.strategy
    assert advice.reason
    assert advice.naive.requests == 121


# ── the loop ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[urllib.request.Request]]:
    """Let the network say these things, one after the other; an int is a status."""

    def prepare(*said: Any) -> list[urllib.request.Request]:
        asked: list[urllib.request.Request] = []
        following: Iterator[Any] = iter(said)

        def urlopen(request: urllib.request.Request, timeout: float) -> Any:
            asked.append(request)
            match next(following):
                case int(status), headers:
                    message = email.message.Message()
                    for name, value in headers.items():
                        message[name] = value
                    raise urllib.error.HTTPError(request.full_url, status, "", message, io.BytesIO())
                case Exception() as error:
                    raise error
                case data:
                    return io.BytesIO(json.dumps(data).encode())

        monkeypatch.setattr(cost.urllib.request, "urlopen", urlopen)
        return asked

    return prepare


RUNNING, DONE = {"status": "running"}, {"status": "completed", "job_id": "job_1"}
URL = "https://host/v1/follow/secret/status"


def test_the_loop_doubles_its_pauses(answers: Any) -> None:
    """Pauses are 1, 2, 4, … up to the cap, and the last answer is returned."""
    answers(*[RUNNING] * 8, DONE)
    slept: list[float] = []
    assert poll_with_backoff(URL, base=1, cap=60, sleep=slept.append) == DONE
    assert slept == [1, 2, 4, 8, 16, 32, 60, 60]


def test_jitter_takes_a_part_of_each_pause(answers: Any) -> None:
    """With jitter every pause lies between nothing and what it would have been, and is not that."""
    answers(*[RUNNING] * 8, DONE)
    slept: list[float] = []
    poll_with_backoff(URL, jitter=True, sleep=slept.append)
    full = [1, 2, 4, 8, 16, 32, 60, 60]
    assert all(0 <= pause <= most for pause, most in zip(slept, full, strict=True))
    assert slept != full


@pytest.mark.parametrize("status", ["failed", "canceled"])
def test_the_loop_raises_on_failure(answers: Any, status: str) -> None:
    """A job that failed or was canceled is an error, which carries the answer."""
    answers(RUNNING, {"status": status, "error": {"code": "no_text"}})
    with pytest.raises(PollFailed, match="no_text") as caught:
        poll_with_backoff(URL, sleep=lambda _: None)
    assert caught.value.data["status"] == status


def test_the_loop_gives_up(answers: Any) -> None:
    """After `max_attempts` it raises, and does not tell the token in the URL."""
    asked = answers(*[RUNNING] * 5)
    with pytest.raises(TimeoutError) as caught:
        poll_with_backoff(URL, max_attempts=5, sleep=lambda _: None)
    assert len(asked) == 5
    assert "secret" not in str(caught.value)


def test_the_loop_bears_with_trouble(answers: Any) -> None:
    """Broken connections, 5xx and pages that are no JSON are looks that said nothing; Retry-After is honoured."""
    answers(
        ConnectionResetError(), (503, {}), (429, {"Retry-After": "30"}), (429, {"Retry-After": "900"}), [], DONE
    )
    slept: list[float] = []
    assert poll_with_backoff(URL, sleep=slept.append) == DONE
    assert slept == [1, 2, 30, 60, 16]


def test_the_loop_stops_at_what_is_final(answers: Any) -> None:
    """A link that has expired is not asked for two hundred times."""
    asked = answers((403, {}))
    with pytest.raises(urllib.error.HTTPError):
        poll_with_backoff(URL)
    assert len(asked) == 1


def test_the_loop_asks_the_web_only() -> None:
    """A file is no status."""
    with pytest.raises(ValueError, match="http"):
        poll_with_backoff("file:///etc/passwd")
