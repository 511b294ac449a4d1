"""Threads for DNS lookups. A lookup cannot be interrupted, so one that hangs keeps its thread."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

THREADS = 128
PER_OWNER = 16  # names that hang, such as those of an own name server that never answers, leave others the rest
WAIT_SECONDS = 1.0  # a name that has an answer is looked up in less


class LookupsBusy(Exception):
    """All lookups that the owner may make at once are running. Try again later; the receiver is not the cause."""


class Lookups:
    """Runs lookups: at most `per_owner` at once for an owner and `threads` in all. Each counts until it ends."""

    def __init__(
        self, *, threads: int = THREADS, per_owner: int = PER_OWNER, wait_seconds: float = WAIT_SECONDS
    ) -> None:
        self._total, self._per_owner, self._wait_seconds = threads, per_owner, wait_seconds
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="webhook-dns")
        self._changed = threading.Condition()
        self._running: Counter[str] = Counter()

    def start(self, owner: str, lookup: Callable[[], T]) -> Future[T]:
        """Start a lookup. Raises LookupsBusy if there is no room for it within `wait_seconds`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._has_room(owner), self._wait_seconds):
                raise LookupsBusy
            self._running[owner] += 1
        future = self._threads.submit(lookup)
        future.add_done_callback(lambda _: self._end(owner))
        return future

    def _has_room(self, owner: str) -> bool:
        return self._running[owner] < self._per_owner and self._running.total() < self._total

    def _end(self, owner: str) -> None:
        with self._changed:
            self._running[owner] -= 1
            self._running += Counter()  # drops owners that have none
            self._changed.notify_all()
