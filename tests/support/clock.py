"""Virtual time. Nothing here waits: a sleep moves the clock.

Wall-clock functions are frozen by time-machine, in every thread and in moto too; `time.sleep` and
`time.monotonic` are replaced where they are looked up as attributes of `time`.  Timeouts of real locks,
subprocesses and sockets keep running on the real clock.
"""

from __future__ import annotations

import heapq
import itertools
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from unittest import mock

import time_machine

EPOCH = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
CALL_SECONDS = 0.001


class Clock:
    """Seconds since the Unix epoch, and what is to happen when they pass."""

    def __init__(self) -> None:
        self._traveller: time_machine.Traveller | None = None
        self._lock = threading.RLock()
        self._order = itertools.count()
        self._alarms: list[tuple[float, int, Callable[[], object]]] = []
        self._slept = 0.0
        self.sleeps: list[float] = []
        self.sleeper: Callable[[float], None] = self.advance

    @property
    def time(self) -> float:
        return time.time()

    @property
    def now(self) -> datetime:
        return datetime.now(UTC)

    def advance(self, seconds: float) -> None:
        """Move forward, ringing the alarms on the way at their own times."""
        target = self.time + max(0.0, seconds)
        while self._alarms and self._alarms[0][0] <= target:
            when, _, alarm = heapq.heappop(self._alarms)
            self._shift(when - self.time)
            alarm()
        self._shift(target - self.time)

    def advance_to(self, when: float) -> None:
        self.advance(when - self.time)

    def tick(self) -> None:
        """An AWS call takes a millisecond, so that what follows it is later, also in a sort key."""
        self._shift(CALL_SECONDS)

    def after(self, seconds: float, alarm: Callable[[], object]) -> None:
        """Ring `alarm` when the clock passes `seconds` from now, also in the middle of a handler's sleep."""
        heapq.heappush(self._alarms, (self.time + seconds, next(self._order), alarm))

    def next_alarm(self) -> float | None:
        return self._alarms[0][0] if self._alarms else None

    def reset(self) -> None:
        self._alarms.clear()
        self.sleeps.clear()
        if self._traveller:
            self._traveller.move_to(EPOCH)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Freeze time at `EPOCH`, and let sleeps move it."""
        real_monotonic, real_sleep = time.monotonic, time.sleep

        def monotonic() -> float:
            return real_monotonic() + self._slept

        with (
            time_machine.travel(EPOCH, tick=False) as self._traveller,
            mock.patch.object(time, "sleep", self._sleep),
            mock.patch.object(time, "monotonic", monotonic),
            # waiting for a child is a loop of sleeps: virtual ones would be hours before the child ends
            mock.patch.object(subprocess, "time", SimpleNamespace(sleep=real_sleep)),
        ):
            yield
        self._traveller = None

    def _sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.sleeper(seconds)

    def _shift(self, seconds: float) -> None:
        if seconds > 0 and self._traveller:
            with self._lock:
                self._slept += seconds
                self._traveller.shift(float(seconds))
