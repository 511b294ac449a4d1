"""When a delivery is tried again."""

from __future__ import annotations

import calendar
import math
import random
import re
from collections.abc import Callable, Sequence
from datetime import datetime

JITTER = 0.2
HONOURED = frozenset({429, 502, 503, 504})
"""The statuses with which a receiver may ask for more time."""

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})"
_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_LONG_DAY = "(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
# IMF-fixdate, and the two obsolete forms that a recipient must accept too (RFC 9110, section 5.6.7).
_DATES = tuple(
    re.compile(form)
    for form in (
        rf"{_DAY}, (?P<day>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME} GMT",
        rf"{_LONG_DAY}, (?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME} GMT",
        rf"{_DAY} {_MONTH} (?P<day>[ 0-9][0-9]) {_TIME} (?P<year>[0-9]{{4}})",
    )
)
_DIGITS = re.compile("[0-9]+")
_MANY_DIGITS = 12  # of seconds are some 30,000 years, and int() refuses 5,000 digits


def next_wait(
    schedule: Sequence[int],
    tries: int,
    *,
    status: int | None,
    retry_after: str | None,
    now: float,
    spread: Callable[[float, float], float] = random.uniform,
) -> int | None:
    """Seconds from now (epoch seconds) to the attempt after `tries` ones; None when the schedule is used up.

    The scheduled wait, spread by up to ±20 % in whole seconds (so not at all below 5 s): `spread` picks a number
    between two. On 429, 502, 503 and 504, `retry_after` can draw that out to twice the scheduled wait at most;
    what is no delay or date by RFC 9110, section 10.2.3, is ignored.
    """
    if tries >= len(schedule):
        return None
    scheduled = schedule[tries]
    margin = int(scheduled * JITTER)
    wait = round(spread(scheduled - margin, scheduled + margin))
    if retry_after is None or status not in HONOURED:
        return wait
    return max(wait, min(_asked(retry_after.strip(" \t"), now), 2 * scheduled))


def span(schedule: Sequence[int]) -> int:
    """The most that all waits of a schedule can come to, in seconds: each drawn out to twice its length.

    It bounds the time from a delivery's creation to the moment its last attempt is due, whatever receivers
    answer. Not in it: what the attempts themselves take, and what a delivery waits for its turn (queue, rate
    limit, open circuit).
    """
    return 2 * sum(schedule)


def _asked(text: str, now: float) -> int:
    """The seconds that a Retry-After asks for; 0 if it is malformed, and below for a date that is past."""
    if _DIGITS.fullmatch(text):
        digits = text.lstrip("0")
        return 10**_MANY_DIGITS if len(digits) > _MANY_DIGITS else int(digits or 0)
    moment = _epoch_seconds(text, now)
    return 0 if moment is None else math.ceil(moment - now)


def _epoch_seconds(text: str, now: float) -> int | None:
    """The moment that an HTTP-date names, or None. That its day of the week is right is not checked."""
    match = next(filter(None, (form.fullmatch(text) for form in _DATES)), None)
    if not match:
        return None
    day, hour, minute, second = (int(match[name]) for name in ("day", "hour", "minute", "second"))
    try:
        date = datetime(_year(match["year"], now), _MONTHS.index(match["month"]) + 1, day)  # noqa: DTZ001 UTC
        date = date.replace(hour=hour, minute=minute, second=min(second, 59) if second <= 60 else second)
    except ValueError:
        return None
    return calendar.timegm(date.timetuple())


def _year(text: str, now: float) -> int:
    """Two digits that would lie more than 50 years ahead are the last century's, as RFC 9110 has it."""
    if len(text) == 4:
        return int(text)
    this_year = int(1970 + now / 31_556_952)
    year = this_year - this_year % 100 + int(text)
    return year - 100 if year > this_year + 50 else year
