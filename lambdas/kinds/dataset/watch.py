"""Looks at the job while a stage works: it stops the stage when the job has ended, and reports progress.

Stopping an execution does not stop its function, so a canceled job would go on for minutes.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from core.errors import JobClosed
from core.log import logger

SECONDS = 2.0


class Interruptible(Protocol):
    def interrupt(self) -> None: ...


class Watch:
    """What a stage tells of its progress, and asks whether to go on. This one belongs to no job."""

    def __init__(self) -> None:
        self.done = self.total = 0
        self._engines: list[Interruptible] = []

    def expect(self, total: int) -> None:
        """A stage begins to work on so many rows."""
        self.done, self.total = 0, total

    def advance(self, done: int) -> None:
        """So many rows are done. Raises JobClosed if the job has ended."""
        self.done = done
        self.check()

    def check(self) -> None:
        """Raises JobClosed if the job has ended."""

    def attach(self, engine: Interruptible) -> None:
        """What to interrupt if the job ends."""
        self._engines.append(engine)


class JobWatch(Watch):
    """A thread asks every two seconds. `require_open` raises JobClosed; `report` takes rows done and in all."""

    def __init__(
        self,
        require_open: Callable[[], None],
        report: Callable[[int, int], None],
        *,
        seconds: float = SECONDS,
    ) -> None:
        super().__init__()
        self._require_open, self._report, self._seconds = require_open, report, seconds
        self._closed: JobClosed | None = None
        self._over = threading.Event()
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._run,), name="watch", daemon=True)

    def check(self) -> None:
        if self._closed:
            raise JobClosed(str(self._closed))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if self._closed and not isinstance(error, JobClosed):
            raise JobClosed(str(self._closed)) from None

    def _run(self) -> None:
        while not self._over.wait(self._seconds):
            try:
                self._look()
            except JobClosed as error:
                self._closed = error
                for engine in self._engines:
                    engine.interrupt()
                return
            except Exception as error:  # the stage goes on, and the next look may succeed
                logger.warning("could not look at the job", error=type(error).__name__)

    def _look(self) -> None:
        self._require_open()
        done, total = self.done, self.total
        if total:
            self._report(min(done, total), total)
