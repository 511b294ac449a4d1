"""core.webhooks.deliveries.schedule"""

from __future__ import annotations

import calendar
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.webhooks.deliveries.schedule import HONOURED, JITTER, next_wait, span

NOW = float(calendar.timegm((2026, 11, 29, 20, 0, 0)))

schedules = st.lists(st.integers(0, 10**6), min_size=1, max_size=12)
statuses = st.none() | st.integers(100, 599) | st.sampled_from(sorted(HONOURED))
shares = st.floats(0, 1)
dates = st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31)).map(  # noqa: DTZ001 UTC
    lambda moment: moment.replace(microsecond=0, tzinfo=UTC)
)
asked_for = (
    st.text()
    | st.integers().map(str)
    | st.from_regex(r"[0-9]{1,30}", fullmatch=True)
    | st.from_regex(r"(Mon|Sun), [0-9]{2} (Jan|Feb) [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT", fullmatch=True)
    | st.from_regex(r"(Monday|Sunday), [0-9]{2}-(Jan|Feb)-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT", fullmatch=True)
    | st.from_regex(r"(Mon|Sun) (Jan|Feb) [ 0-9][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2} [0-9]{4}", fullmatch=True)
    | dates.map(lambda moment: format_datetime(moment, usegmt=True))
    | st.sampled_from(
        ["9" * 5000, "0" * 5000, "-" + "9" * 5000, "\u0665", "5\n", "1_0", "+5", "1e3", "inf", "nan"]
    )
)


def at(share: float) -> Callable[[float, float], float]:
    """A `spread` that returns this share of its range."""
    return lambda low, high: low + (high - low) * share


def middle(low: float, high: float) -> float:
    return (low + high) / 2


def wait(retry_after: str | None, *, status: int | None = 503, scheduled: int = 300) -> int | None:
    return next_wait((0, scheduled), 1, status=status, retry_after=retry_after, now=NOW, spread=middle)


@given(schedule=schedules, tries=st.integers(0, 15), share=shares)
def test_spread(schedule: list[int], tries: int, share: float) -> None:
    """A wait is whole seconds within 20 % of the scheduled one, and None after the last entry."""
    given_wait = next_wait(schedule, tries, status=None, retry_after=None, now=NOW, spread=at(share))
    assert (given_wait is None) == (tries >= len(schedule))
    if given_wait is not None:
        assert type(given_wait) is int
        assert abs(given_wait - schedule[tries]) <= schedule[tries] * JITTER


def test_both_ends_of_the_spread() -> None:
    """The jitter is up to 20 % in both directions, and random by default."""
    ends = [next_wait((300,), 0, status=500, retry_after=None, now=NOW, spread=at(share)) for share in (0, 1)]
    assert ends == [240, 360]
    assert len({next_wait((86400,), 0, status=500, retry_after=None, now=NOW) for _ in range(20)}) > 1


@given(
    schedule=schedules,
    tries=st.integers(0, 15),
    status=statuses,
    text=asked_for,
    now=st.floats(0, 4e9),
    share=shares,
)
def test_any_retry_after(
    schedule: list[int], tries: int, status: int | None, text: str, now: float, share: float
) -> None:
    """Any Retry-After gives a wait between the one without it and twice the scheduled one."""
    without = next_wait(schedule, tries, status=status, retry_after=None, now=now, spread=at(share))
    with_it = next_wait(schedule, tries, status=status, retry_after=text, now=now, spread=at(share))
    if without is None:
        assert with_it is None
        return
    assert type(with_it) is int
    assert without <= with_it <= 2 * schedule[tries]
    assert with_it == without or status in (429, 502, 503, 504)


@given(seconds=st.integers(300, 600), status=st.sampled_from([429, 502, 503, 504]))
def test_delay_seconds(seconds: int, status: int) -> None:
    """A delay in seconds within the limits is exact, also with leading zeros and white space."""
    assert [wait(text, status=status) for text in (str(seconds), f"000{seconds}", f" \t{seconds} ")] == [
        seconds
    ] * 3


@pytest.mark.parametrize("status", [None, 200, 301, 400, 404, 408, 410, 500, 501, 505])
def test_other_statuses(status: int | None) -> None:
    """With other statuses, Retry-After is ignored."""
    assert wait("500", status=status) == 300


@given(ahead=st.integers(301, 599))
def test_http_dates(ahead: int) -> None:
    """A date in any of the three forms of RFC 9110 is respected."""
    moment = datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=ahead)
    forms = ("%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y")
    assert [wait(moment.strftime(form)) for form in forms] == [ahead] * 3


def test_a_fraction_of_now() -> None:
    """The wait is rounded up to the date, if now has a fraction of a second."""
    text = "Sun, 29 Nov 2026 20:06:40 GMT"
    assert next_wait((300,), 0, status=503, retry_after=text, now=NOW + 0.25, spread=middle) == 400


def test_a_wrong_day_of_the_week() -> None:
    """A date with a wrong day of the week is valid, because to ignore it would send too early."""
    assert wait("Tue, 29 Nov 2026 20:06:40 GMT") == 400


def test_day_of_one_digit() -> None:
    """asctime pads the day with a space."""
    now = float(calendar.timegm((2026, 11, 6, 8, 0, 0)))
    text = "Fri Nov  6 08:06:40 2026"
    assert next_wait((300,), 0, status=503, retry_after=text, now=now, spread=middle) == 400


@pytest.mark.parametrize("text", ["Sun, 29 Nov 2026 20:06:60 GMT", "Sun, 29 Nov 2026 20:06:59 GMT"])
def test_leap_second(text: str) -> None:
    """A leap second is a valid time."""
    assert wait(text) == 419


@pytest.mark.parametrize(("year", "expected"), [("76", 600), ("77", 300), ("99", 300), ("25", 300), ("27", 600)])
def test_years_of_two_digits(year: str, expected: int) -> None:
    """A year more than 50 years ahead is in the last century, and so in the past."""
    assert wait(f"Monday, 01-Feb-{year} 00:00:00 GMT") == expected


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "-1",
            "+5",
            "500.0",
            "1.5",
            "5e2",
            "0x1ff",
            "500s",
            "500, 500",
            "500;",
            "five",
            "\u0665\u0660\u0660",
        ),
        *("5 00", "500\n", "\r\n500", "\x00500", "500\ud800", "1_0_0_0", "inf", "nan", "-0", "０５００"),
        *("Sun, 29 Nov 2026 20:06:40", "Sun, 29 Nov 2026 20:06:40 CET", "Sun, 29 Nov 2026 20:06:40 +0000"),
        *("29 Nov 2026 20:06:40 GMT", "Sun, 9 Nov 2026 20:06:40 GMT", "sun, 29 nov 2026 20:06:40 gmt"),
        *("Sun, 29 Nov 2026 24:06:40 GMT", "Sun, 29 Nov 2026 20:60:40 GMT", "Sun, 29 Nov 2026 20:06:61 GMT"),
        *("Sun, 31 Nov 2026 20:06:40 GMT", "Sun, 00 Nov 2026 20:06:40 GMT", "Mon, 30 Feb 2027 00:00:00 GMT"),
        *("Sun, 29 Nov 0000 20:06:40 GMT", "Sun, 29 Nov 99999 20:06:40 GMT", "2026-11-29T20:06:40Z"),
        *("Sun Nov   20:06:40 2026", "Sun, 29 Nov 2026 20:06:40 GMT, Sun, 29 Nov 2026 20:06:40 GMT"),
        *("Wed, 21 Oct 2015 07:28:00 GMT", "Sun, 29 Nov 2026 19:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 GMT"),
    ],
)
def test_ignored(text: str) -> None:
    """A malformed, negative or past value changes nothing."""
    assert wait(text) == 300


@pytest.mark.parametrize(
    "text",
    ["601", "9999999999", "9" * 12, "9" * 13, "9" * 5000, "Fri, 31 Dec 9999 23:59:59 GMT", "0" * 5000 + "700"],
)
def test_too_long(text: str) -> None:
    """A longer value extends the wait to twice the scheduled one."""
    assert wait(text) == 600


def test_zero_asked() -> None:
    """Retry-After cannot shorten a wait, or extend a scheduled wait of zero."""
    assert (wait("0"), wait("0" * 5000), wait("60", scheduled=0)) == (300, 300, 0)


@given(schedule=schedules, data=st.data())
def test_span(schedule: list[int], data: st.DataObject) -> None:
    """The waits of a delivery are never longer than the span together, and can be just as long."""
    draws = [(data.draw(statuses), data.draw(st.none() | asked_for)) for _ in schedule]
    total = sum(
        next_wait(schedule, tries, status=status, retry_after=text, now=NOW) or 0
        for tries, (status, text) in enumerate(draws)
    )
    assert total <= span(schedule)
    longest = [
        next_wait(schedule, tries, status=503, retry_after="9" * 20, now=NOW) or 0
        for tries in range(len(schedule))
    ]
    assert sum(longest) == span(schedule)
