"""How many attempts an invocation makes at once for one owner, and for one host and port of an owner.

Without limits, a receiver that takes long to answer would use up the threads of all senders.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field

from webhooks.sender.destinations import Host

OWNER_ATTEMPTS = 64  # so the threads are enough for six owners whose receivers are all slow
HOST_ATTEMPTS = 32  # at 50 ms for a response these are 640 attempts per second, more than the CPU allows
NEW_HOST_ATTEMPTS = 4  # to a host that has not yet answered 2xx
SLOW_SECONDS = 0.5


class NoRoom(Exception):
    """The attempt would exceed a limit."""


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """An attempt that is being made."""

    host: Host
    since: float = field(default_factory=lambda: time.monotonic())

    @property
    def is_slow(self) -> bool:
        return time.monotonic() - self.since > SLOW_SECONDS


class InFlight:
    """The running attempts of one invocation. Thread-safe.

    After `slow_until` (`time.monotonic`) no attempt starts for an owner who has a slow one, so that the invocation
    can end.
    """

    def __init__(self, *, slow_until: float) -> None:
        self._slow_until = slow_until
        self._changed = threading.Condition()
        self._running: defaultdict[str, list[Running]] = defaultdict(list)  # by owner
        self._verified: set[tuple[str, str]] = set()

    @property
    def total(self) -> int:
        with self._changed:
            return sum(map(len, self._running.values()))

    @property
    def has_slow(self) -> bool:
        with self._changed:
            return any(each.is_slow for running in self._running.values() for each in running)

    def start(self, host: Host, *, wait_seconds: float = 0) -> Running | None:
        """Count an attempt, for which `end` must be called; None if there is no room within `wait_seconds`."""
        with self._changed:
            if not self._has_room(host) and not (
                wait_seconds and self._changed.wait_for(lambda: self._has_room(host), wait_seconds)
            ):
                return None
            running = Running(host)
            self._running[host.owner].append(running)
            return running

    def end(self, running: Running) -> None:
        """It can be called again."""
        with self._changed:
            host = running.host
            if running in self._running[host.owner]:
                self._running[host.owner].remove(running)
            if host.is_verified:
                self._verified.add((host.owner, host.name))
            self._changed.notify_all()

    def is_full(self, host: Host) -> bool:
        """Whether there is no room, and the owner's running attempts are slow, so that waiting is of no use."""
        with self._changed:
            return not self._has_room(host) and any(each.is_slow for each in self._running[host.owner])

    def _has_room(self, host: Host) -> bool:
        running = self._running[host.owner]
        if time.monotonic() > self._slow_until and any(each.is_slow for each in running):
            return False
        is_verified = host.is_verified or (host.owner, host.name) in self._verified
        limit = HOST_ATTEMPTS if is_verified else NEW_HOST_ATTEMPTS
        return len(running) < OWNER_ATTEMPTS and sum(each.host.name == host.name for each in running) < limit
