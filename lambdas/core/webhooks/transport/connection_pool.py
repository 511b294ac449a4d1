"""ConnectionPool that wait to be used again, so that a busy endpoint costs no handshake per delivery."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from ssl import SSLWantReadError
from typing import Any

from core.webhooks.transport.addresses import Address

IDLE_SECONDS = 30.0  # less than most servers and NAT gateways wait
AGE_SECONDS = 300.0  # so that a name that has moved is looked up again
PER_KEY = 130  # the attempts of a sender, should all go to one endpoint
TOTAL = 200


class Instant:
    """A moment by two clocks: while a function is frozen either may stand still, or be set."""

    def __init__(self) -> None:
        self._monotonic, self._wall = time.monotonic(), time.time()

    def elapsed(self) -> float:
        """Seconds since then, by the clock that saw more of them."""
        return max(time.monotonic() - self._monotonic, time.time() - self._wall)


@dataclass(frozen=True, kw_only=True, eq=False)
class PooledConnection:
    """An open stream (a socket, or TLS over one) to `address`, which was vetted when it was opened."""

    stream: Any
    address: Address
    opened: Instant = field(default_factory=Instant)
    kept: Instant = field(default_factory=Instant)

    def expired(self) -> bool:
        return self.kept.elapsed() > IDLE_SECONDS or self.opened.elapsed() > AGE_SECONDS

    def is_quiet(self) -> bool:
        """Whether it is open, and holds not one byte that no request asked for. Does not wait."""
        try:
            self.stream.setblocking(False)
            self.stream.recv(1)
        except (BlockingIOError, SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        with suppress(OSError):
            self.stream.close()


class ConnectionPool:
    """Idle connections of one warm function, by key. Safe to share between threads.

    One that is taken is in nobody else's hands until it is kept again. At most `PER_KEY` wait under a key and
    `TOTAL` in all; beyond that the one that has waited longest is closed. None waits longer than
    `IDLE_SECONDS` or lives longer than `AGE_SECONDS`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[tuple[Hashable, PooledConnection]] = []  # by time kept

    def take(self, key: Hashable) -> PooledConnection | None:
        """The connection kept last under `key` that is still fit for use, or None."""
        while connection := self._pop(key):
            if not connection.expired() and connection.is_quiet():
                return connection
            connection.close()
        return None

    def keep(self, key: Hashable, connection: PooledConnection) -> None:
        """Let it wait. Whoever keeps it has read all that was sent on it, and uses it no more."""
        with self._lock:
            self._idle.append((key, replace(connection, kept=Instant())))
            same = [entry for entry in self._idle if entry[0] == key]
            for entry in same[:-PER_KEY] or self._idle[:-TOTAL]:
                self._idle.remove(entry)
                entry[1].close()

    def close(self) -> None:
        with self._lock:
            while self._idle:
                self._idle.pop()[1].close()

    def _pop(self, key: Hashable) -> PooledConnection | None:
        with self._lock:
            while self._idle and self._idle[0][1].expired():
                self._idle.pop(0)[1].close()
            for position in reversed(range(len(self._idle))):
                if self._idle[position][0] == key:
                    return self._idle.pop(position)[1]
        return None
