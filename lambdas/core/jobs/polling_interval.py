"""When to poll a job again: the values of `Retry-After` and `expected_completion`.

A client shall learn of the end within 5 % of the job's duration or 30 s, whichever is more, with few requests. It
need not poll before the job can be done; then each poll follows the one before after 5 % of the job's age. When a
job can be done is estimated from its progress, or from the durations of earlier jobs of the kind. Without either,
the intervals grow with the job's age.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

MAX_DELAY = 0.05  # of a job's duration
MAX_DELAY_SECONDS = 30.0  # of any job's end
INTERVAL = MAX_DELAY  # of the age: if a job ends right after a poll, its age is about its duration
FIRST_POLL_SECONDS = 5.0
EARLY_POLL = 0.01  # of the usual duration: finds jobs that fail at once
MIN_SAMPLES = 5
MAX_SAMPLES = 30  # of the last jobs
MINIMUM_MARGIN = 0.6  # the next job may be shorter than the shortest of n jobs by this share divided by n
MIN_PROGRESS = 0.02  # less does not allow an estimate
REMAINING_SHARE = 0.85  # of the estimated remaining time, since progress is rarely even
MAX_REMAINING = 8  # times the age, since a job may slow down or speed up


@dataclass(frozen=True, slots=True)
class History:
    """The durations in seconds of the last jobs of a kind, the latest last."""

    seconds: tuple[float, ...] = ()

    def with_one(self, seconds: float) -> History:
        """The history with one more duration."""
        return History((*self.seconds, seconds)[-MAX_SAMPLES:])

    @property
    def usual(self) -> float | None:
        """The median duration in seconds; None with fewer than MIN_SAMPLES."""
        return statistics.median(self.seconds) if len(self.seconds) >= MIN_SAMPLES else None

    @property
    def minimum(self) -> float:
        """The shortest duration to expect, in seconds; 0 without samples."""
        return min(self.seconds) * (1 - MINIMUM_MARGIN / len(self.seconds)) if self.seconds else 0.0


def expected_duration(age: float, *, history: History, progress: float | None = None) -> float | None:
    """The estimated duration in seconds, or None. `progress`: the share of the work that is done."""
    if progress is not None and progress >= MIN_PROGRESS:
        return age / progress
    usual = history.usual
    # A job that takes longer than usual may still take long.
    return None if usual is None else max(usual, age * (1 + INTERVAL))


def next_poll(age: float, *, history: History, progress: float | None = None) -> int:
    """Whole seconds, at least one, until the next poll of a job of this age in seconds.

    `progress` is the share that may be done by now, which includes the batch in progress.
    """
    return max(1, math.ceil(_seconds_to_wait(age, history, progress)))


def _seconds_to_wait(age: float, history: History, progress: float | None) -> float:
    usual = history.usual
    if progress is not None and progress >= MIN_PROGRESS and age > 0:
        remaining = age / progress - age
        return max(REMAINING_SHARE * min(remaining, MAX_REMAINING * age), _interval(age, usual))
    if usual is not None and age < max(EARLY_POLL * usual, history.minimum):
        return (EARLY_POLL * usual if age < EARLY_POLL * usual else history.minimum) - age
    return _interval(age, usual)


def _interval(age: float, usual: float | None) -> float:
    """5 % of the age, or up to 30 s if that is more; less if jobs of the kind are short.

    Rounded down, because the interval is the longest delay with which the end is noticed.
    """
    if usual is not None:
        return math.floor(max(INTERVAL * age, min(MAX_DELAY_SECONDS, usual / 4)))
    if age < MAX_DELAY_SECONDS:
        return (FIRST_POLL_SECONDS if age < FIRST_POLL_SECONDS else MAX_DELAY_SECONDS) - age
    return math.floor(max(INTERVAL * age, MAX_DELAY_SECONDS))
