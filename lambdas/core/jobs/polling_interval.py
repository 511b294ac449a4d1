"""When to look again at a job that is not done: what `Retry-After` and `expected_completion` say.

The aim is to know of the end within 5 % of the job's length or 30 s, whichever is more, with few requests. Before
a job can be done nobody needs to look; from then on each look comes 5 % of the age after the one before. When it
can be done follows from how far it is, or from how long jobs of its kind took; else looks simply grow rarer.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

LATENESS = 0.05  # of a job's length
LATE_SECONDS = 30.0  # of any job's
GAP = LATENESS  # of the age: a job that ends right after a look is not much older than that
FIRST_POLL_SECONDS = 5.0
EARLY_POLL = 0.01  # of the usual length: what fails at once is not waited for to the end
LEAST_SAMPLES = 5
MEMORY = 30  # jobs; older ones are forgotten
UNSEEN = 0.6  # the shortest of n jobs is not the shortest there can be: that much, divided by n, is allowed for
TRUSTED_PROGRESS = 0.02
PROGRESS_STEP = 0.85  # of what remains: progress is rarely even
FARTHEST = 8  # ages: nor does it go on for ever as it began


@dataclass(frozen=True, slots=True)
class History:
    """How many seconds the last jobs of a kind took, the latest last."""

    seconds: tuple[float, ...] = ()

    def with_one(self, seconds: float) -> History:
        """The history once another job has taken this long."""
        return History((*self.seconds, seconds)[-MEMORY:])

    @property
    def usual(self) -> float | None:
        """Seconds that such a job takes; None while too few are known."""
        return statistics.median(self.seconds) if len(self.seconds) >= LEAST_SAMPLES else None

    @property
    def least(self) -> float:
        """Seconds that all of them take, as far as is known; 0 where nothing is."""
        return min(self.seconds) * (1 - UNSEEN / len(self.seconds)) if self.seconds else 0.0


def expected_length(age: float, *, history: History, progress: float | None = None) -> float | None:
    """Seconds that the job will have taken, where that can be known. `progress` is the share of its work done."""
    if progress is not None and progress >= TRUSTED_PROGRESS:
        return age / progress
    usual = history.usual
    # One that has outlived what is usual is not about to end for that.
    return None if usual is None else max(usual, age * (1 + GAP))


def next_poll(age: float, *, history: History, progress: float | None = None) -> int:
    """Whole seconds, at least one, until it is worth to look again at a job of this age in seconds.

    `progress` is the share that may be done by now: what is known only in large steps is one step further.
    """
    return max(1, math.ceil(_wait(age, history, progress)))


def _wait(age: float, history: History, progress: float | None) -> float:
    usual = history.usual
    if progress is not None and progress >= TRUSTED_PROGRESS and age > 0:
        remaining = age / progress - age
        return max(PROGRESS_STEP * min(remaining, FARTHEST * age), _gap(age, usual))
    if usual is not None and age < max(EARLY_POLL * usual, history.least):
        return (EARLY_POLL * usual if age < EARLY_POLL * usual else history.least) - age
    return _gap(age, usual)


def _gap(age: float, usual: float | None) -> float:
    """5 % of the age; while 30 s are more, up to that much, but less where jobs are known to be short.

    Rounded down: a gap is as long as an end may go unnoticed, and rounded up it would be longer.
    """
    if usual is not None:
        return math.floor(max(GAP * age, min(LATE_SECONDS, usual / 4)))
    if age < LATE_SECONDS:
        return (FIRST_POLL_SECONDS if age < FIRST_POLL_SECONDS else LATE_SECONDS) - age
    return math.floor(max(GAP * age, LATE_SECONDS))
