"""A pool of idle connections, so that frequent deliveries to one endpoint need no handshake each."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from ssl import SSLWantReadError
from typing import Any

from core.webhooks.transport.addresses import Address

IDLE_SECONDS = 30.0  # less than the idle timeout of most servers and NAT gateways
AGE_SECONDS = 300.0  # so that a changed DNS record is used after this time
PER_KEY = 130  # the concurrent attempts of a sender, if all go to one endpoint
TOTAL = 200


class Instant:
    """A time by two clocks: while Lambda freezes a function, each of them can stop or be set."""

    def __init__(self) -> None:
        self._monotonic, self._wall = time.monotonic(), time.time()

    def elapsed(self) -> float:
        """Seconds since then, by the clock that counts more."""
        return max(time.monotonic() - self._monotonic, time.time() - self._wall)


@dataclass(frozen=True, kw_only=True, eq=False)
class PooledConnection:
    """An open stream (a socket, or TLS over one) to `address`, which was checked when it was opened."""

    stream: Any
    address: Address
    opened: Instant = field(default_factory=Instant)
    kept: Instant = field(default_factory=Instant)

    def expired(self) -> bool:
        return self.kept.elapsed() > IDLE_SECONDS or self.opened.elapsed() > AGE_SECONDS

    def is_reusable(self) -> bool:
        """Whether it is open and has no unread bytes, which would belong to no request. Does not block."""
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
    """Idle connections of one warm function, by key. Thread-safe.

    `take` removes a connection from the pool, and `keep` returns it. The pool has at most `PER_KEY` connections
    per key and `TOTAL` in all; the one that has been idle longest is closed first. Connections are closed after
    `IDLE_SECONDS` without use, and `AGE_SECONDS` after they were opened.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[tuple[Hashable, PooledConnection]] = []  # by the time of `keep`

    def take(self, key: Hashable) -> PooledConnection | None:
        """The most recently used connection of `key` that is still usable, or None."""
        while connection := self._pop(key):
            if not connection.expired() and connection.is_reusable():
                return connection
            connection.close()
        return None

    def keep(self, key: Hashable, connection: PooledConnection) -> None:
        """The caller must have read the whole response, and must not use the connection any more."""
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
