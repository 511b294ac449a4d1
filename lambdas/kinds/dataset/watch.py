"""Looks at the job while a stage works: it stops the stage when the job has ended, and reports progress.

Stopping an execution does not stop its function, so a canceled job would go on for minutes. The thread that works
looks itself, between its steps and while it waits for the engine: calls to AWS come from one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Protocol, TypeVar

from core.errors import JobClosed

T = TypeVar("T")
SECONDS = 2.0


class Interruptible(Protocol):
    def interrupt(self) -> None: ...


class Watch:
    """What a stage tells of its progress, and asks whether to go on. This one belongs to no job."""

    def __init__(self) -> None:
        self.share = 0.0
        self._engines: list[Interruptible] = []

    def advance(self, share: float) -> None:
        """This share of the stage is done, from 0 to 1. Raises JobClosed if the job has ended."""
        self.share = min(share, 1.0)
        self.check()

    def check(self) -> None:
        """Raises JobClosed if the job has ended."""

    def attach(self, engine: Interruptible) -> None:
        """What to interrupt if the job ends while `wait_for` waits."""
        self._engines.append(engine)

    def wait_for(self, running: Future[T]) -> T:
        """The result of what another thread does. Raises JobClosed, after that thread was interrupted."""
        while not wait([running], timeout=SECONDS).done:
            try:
                self.check()
            except JobClosed:
                for engine in self._engines:
                    engine.interrupt()
                wait([running])
                raise
        return running.result()


class JobWatch(Watch):
    """Looks every two seconds. `require_open` raises JobClosed; `report` takes the share of the stage."""

    def __init__(self, require_open: Callable[[], None], report: Callable[[float], None]) -> None:
        super().__init__()
        self._require_open, self._report = require_open, report
        self._looked = time.monotonic()

    def check(self) -> None:
        if time.monotonic() - self._looked < SECONDS:
            return
        self._looked = time.monotonic()
        self._require_open()
        self._report(self.share)
