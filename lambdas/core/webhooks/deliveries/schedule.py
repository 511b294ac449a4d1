"""The times of attempts: the schedule, its jitter, and `Retry-After`."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime

JITTER = 0.2
HONOURED = frozenset({429, 502, 503, 504})
"""The statuses with which a receiver can delay the next attempt."""

_MANY_DIGITS = 12  # as seconds some 30,000 years; int() refuses 5,000 digits

# RFC 9110, section 5.6.7: IMF-fixdate, and two obsolete forms that a recipient must accept.
_IMF_FIXDATE = "%a, %d %b %Y %H:%M:%S GMT"
_RFC_850 = "%A, %d-%b-%y %H:%M:%S GMT"
_ASCTIME = "%a %b %d %H:%M:%S %Y"


def next_wait(
    schedule: Sequence[int],
    tries: int,
    *,
    status: int | None,
    retry_after: str | None,
    now: float,
    spread: Callable[[float, float], float] = random.uniform,
) -> int | None:
    """Seconds from `now` (epoch seconds) to the attempt after `tries` ones; None if none is left.

    The scheduled wait with a jitter of up to ±20 % in whole seconds (so none below 5 s). `spread` picks a number
    between two. With status 429, 502, 503 or 504, `retry_after` can extend the wait to at most twice the scheduled
    one. A value that is not a delay or date (RFC 9110, section 10.2.3) is ignored.
    """
    if tries >= len(schedule):
        return None
    scheduled = schedule[tries]
    margin = int(scheduled * JITTER)
    wait = round(spread(scheduled - margin, scheduled + margin))
    if retry_after is None or status not in HONOURED:
        return wait
    return max(wait, min(_delay(retry_after.strip(" \t"), now), 2 * scheduled))


def span(schedule: Sequence[int]) -> int:
    """The sum of all waits of a schedule, in seconds, if each is extended to twice its length.

    So the last attempt is due at most this long after a delivery's creation, whatever receivers answer. It does
    not include the attempts, and delays by queue, rate limit, order and open circuit.
    """
    return 2 * sum(schedule)


def _delay(text: str, now: float) -> int:
    """The seconds in a Retry-After; 0 if it is malformed, negative for a date in the past."""
    if text.isascii() and text.isdigit():
        digits = text.lstrip("0")
        return 10**_MANY_DIGITS if len(digits) > _MANY_DIGITS else int(digits or 0)
    date = _http_date(text, now)
    return 0 if date is None else math.ceil(date - now)


def _http_date(text: str, now: float) -> float | None:
    """An HTTP-date in epoch seconds; None if it is malformed. The day of the week can be a wrong one."""
    for form in (_IMF_FIXDATE, _RFC_850, _ASCTIME):
        with suppress(ValueError):
            parsed = time.strptime(text, form)
            if _is_exact(text, form, parsed):
                year = _full_year(parsed.tm_year, now) if form == _RFC_850 else parsed.tm_year
                second = min(parsed.tm_sec, 59)  # datetime has no leap seconds
                return datetime(
                    year, parsed.tm_mon, parsed.tm_mday, parsed.tm_hour, parsed.tm_min, second, tzinfo=UTC
                ).timestamp()
    return None


def _is_exact(text: str, form: str, parsed: time.struct_time) -> bool:
    """Whether the text has exactly this form.

    `strptime` also accepts other letter cases, days of one digit, more white space, digits of other scripts and a
    61st leap second. `email.utils` accepts even more, and no leap second.
    """
    if form == _ASCTIME and text[8:9] == " ":  # this form pads the day with a space, `strftime` with a zero
        text = f"{text[:8]}0{text[9:]}"
    return parsed.tm_sec <= 60 and text == time.strftime(form, parsed)


def _full_year(year: int, now: float) -> int:
    """The year of two digits: in this century, or the last one if that is more than 50 years ahead (RFC 9110).

    `strptime` has a fixed rule instead: 69 to 99 are in the twentieth century.
    """
    this_year = datetime.fromtimestamp(now, UTC).year
    year = this_year - this_year % 100 + year % 100
    return year - 100 if year > this_year + 50 else year
