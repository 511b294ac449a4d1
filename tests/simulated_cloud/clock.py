"""The virtual clock. Nothing waits: a sleep moves the clock.

time-machine freezes the wall clock in every thread, in moto too. `time.sleep` and `time.monotonic` are replaced as
attributes of `time`, so code that imports these functions by name is not affected. Timeouts of real locks,
subprocesses and sockets use the real clock.
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
    """The time in seconds since the Unix epoch, and timers. `sleeps` records the seconds of each `time.sleep`."""

    def __init__(self) -> None:
        self._traveller: time_machine.Traveller | None = None
        self._lock = threading.RLock()
        self._order = itertools.count()
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._slept = 0.0
        self.sleeps: list[float] = []
        self.on_sleep: Callable[[float], None] = self.advance

    @property
    def time(self) -> float:
        return time.time()

    @property
    def now(self) -> datetime:
        return datetime.now(UTC)

    def advance(self, seconds: float) -> None:
        """Move the clock forward, and run each timer on the way at its own time."""
        target = self.time + max(0.0, seconds)
        while self._timers and self._timers[0][0] <= target:
            when, _, timer = heapq.heappop(self._timers)
            self._shift(when - self.time)
            timer()
        self._shift(target - self.time)

    def advance_to(self, when: float) -> None:
        self.advance(when - self.time)

    def tick(self) -> None:
        """Let the millisecond of an AWS call pass, so that timestamps and sort keys made later sort later."""
        self._shift(CALL_SECONDS)

    def call_later(self, seconds: float, timer: Callable[[], object]) -> None:
        """Run `timer` when the clock has moved `seconds` on, also during the sleep of a handler."""
        heapq.heappush(self._timers, (self.time + seconds, next(self._order), timer))

    def next_timer(self) -> float | None:
        """The time of the next timer."""
        return self._timers[0][0] if self._timers else None

    def reset(self) -> None:
        self._timers.clear()
        self.sleeps.clear()
        if self._traveller:
            self._traveller.move_to(EPOCH)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Freeze time at `EPOCH` inside the block."""
        real_monotonic, real_sleep = time.monotonic, time.sleep

        def monotonic() -> float:
            return real_monotonic() + self._slept

        with (
            time_machine.travel(EPOCH, tick=False) as self._traveller,
            mock.patch.object(time, "sleep", self._sleep),
            mock.patch.object(time, "monotonic", monotonic),
            # subprocess waits for a child in a loop of sleeps; virtual sleeps would move the clock by hours
            mock.patch.object(subprocess, "time", SimpleNamespace(sleep=real_sleep)),
        ):
            yield
        self._traveller = None

    def _sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.on_sleep(seconds)

    def _shift(self, seconds: float) -> None:
        if seconds > 0 and self._traveller:
            with self._lock:
                self._slept += seconds
                self._traveller.shift(float(seconds))
