"""core.webhooks.transport.connection_pool, with fake streams. test_client uses real ones."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from ssl import SSLError, SSLWantReadError

import pytest

from core.webhooks.transport import connection_pool as module
from core.webhooks.transport.connection_pool import (
    AGE_SECONDS,
    IDLE_SECONDS,
    PER_KEY,
    TOTAL,
    ConnectionPool,
    PooledConnection,
)


class Stream:
    """A non-blocking socket whose `recv` returns or raises `state`."""

    def __init__(self, state: bytes | OSError | None = None) -> None:
        self.state = state or BlockingIOError()
        self.closed = 0

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def recv(self, size: int) -> bytes:
        if isinstance(self.state, OSError):
            raise self.state
        return self.state

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def idle() -> ConnectionPool:
    return ConnectionPool()


@pytest.fixture(params=["monotonic", "time"])
def advance(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Advance one of the two clocks; the other one stands still, as while Lambda freezes a function."""
    now = {"monotonic": 5.0, "time": 1.8e9}
    for clock in now:
        monkeypatch.setattr(module.time, clock, functools.partial(now.__getitem__, clock))

    def advance(seconds: float) -> None:
        now[request.param] += seconds

    return advance


def connection(stream: Stream | None = None) -> PooledConnection:
    return PooledConnection(stream=stream or Stream(), address=ip_address("8.8.8.8"))


def fill(idle: ConnectionPool, *keys: str) -> list[Stream]:
    streams = [Stream() for _ in keys]
    for key, stream in zip(keys, streams, strict=True):
        idle.keep(key, connection(stream))
    return streams


def taken(idle: ConnectionPool, key: str) -> Stream | None:
    found = idle.take(key)
    return found.stream if found else None


def test_taken_once(idle: ConnectionPool) -> None:
    """A taken connection is not in the pool until it is kept again. The one kept last is taken first."""
    first, second = fill(idle, "a", "a")
    assert [taken(idle, "a") for _ in range(3)] == [second, first, None]
    assert (first.closed, second.closed) == (0, 0)


def test_keys_are_apart(idle: ConnectionPool) -> None:
    """Connections are only found under their own key."""
    a, b = fill(idle, "a", "b")
    assert [taken(idle, key) for key in ("c", "a", "a", "b")] == [None, a, None, b]


@pytest.mark.parametrize("state", [b"x", b"", ConnectionResetError(), SSLError(), OSError(9, "x")])
def test_unusable_connections(idle: ConnectionPool, state: bytes | OSError) -> None:
    """A connection that has ended, failed or has unread bytes is closed, and the next one is checked."""
    good, bad = Stream(SSLWantReadError()), Stream()
    idle.keep("a", connection(good))
    idle.keep("a", connection(bad))
    bad.state = state
    assert taken(idle, "a") is good
    assert (good.closed, bad.closed) == (0, 1)


def test_bound_per_key(idle: ConnectionPool) -> None:
    """Above the limit per key, the connection idle for longest is closed. Other keys are not affected."""
    (other,) = fill(idle, "b")
    streams = fill(idle, *("a" * (PER_KEY + 2)))
    assert [stream.closed for stream in streams] == [1, 1] + [0] * PER_KEY
    assert taken(idle, "b") is other


def test_bound_in_all(idle: ConnectionPool) -> None:
    """Above the total limit, the connection that has been idle longest is closed."""
    streams = fill(idle, *(f"{n}" for n in range(TOTAL + 3)))
    assert [n for n, stream in enumerate(streams) if stream.closed] == [0, 1, 2]


@pytest.mark.parametrize(("seconds", "fit"), [(IDLE_SECONDS, True), (IDLE_SECONDS + 0.1, False)])
def test_idle_too_long(idle: ConnectionPool, advance: Callable[[float], None], seconds: float, fit: bool) -> None:
    """A connection that has been idle for more than 30 s is closed, whichever key is taken."""
    (stream,) = fill(idle, "a")
    advance(seconds)
    idle.take("b")
    assert stream.closed == (not fit)
    assert taken(idle, "a") is (stream if fit else None)


def test_too_old(idle: ConnectionPool, advance: Callable[[float], None]) -> None:
    """Use resets the idle time of a connection, but not its age."""
    each, lived = connection(), 0.0
    while lived <= AGE_SECONDS:
        idle.keep("a", each)
        found = idle.take("a")
        assert found
        each = found
        advance(IDLE_SECONDS)
        lived += IDLE_SECONDS
    (young,) = fill(idle, "b")
    idle.keep("a", each)
    assert taken(idle, "a") is None
    assert (each.stream.closed, young.closed) == (1, 0)


def test_clock_that_was_set_back(idle: ConnectionPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wall clock that is set back closes no connection."""
    (stream,) = fill(idle, "a")
    monkeypatch.setattr(module.time, "time", lambda: 0.0)
    assert taken(idle, "a") is stream


def test_close(idle: ConnectionPool) -> None:
    """All idle connections are closed, and the pool can still be used."""
    streams = fill(idle, "a", "b")
    idle.close()
    assert [stream.closed for stream in streams] == [1, 1]
    assert taken(idle, "a") is None
    assert fill(idle, "a") == [taken(idle, "a")]


def test_close_that_fails(idle: ConnectionPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error on closing a connection is ignored."""

    def close(self: Stream) -> None:
        raise OSError

    monkeypatch.setattr(Stream, "close", close)
    fill(idle, "a")
    idle.close()


def test_forty_threads(idle: ConnectionPool) -> None:
    """With any number of threads, no two have the same connection, and the limits apply."""
    held, together, guard = set(), [], threading.Lock()

    def use(number: int) -> None:
        for turn in range(50):
            key = f"{(number + turn) % 5}"
            mine = idle.take(key) or connection()
            with guard:
                together.append(mine.stream in held)
                held.add(mine.stream)
            with guard:
                held.discard(mine.stream)
            idle.keep(key, mine)

    with ThreadPoolExecutor(40) as pool:
        list(pool.map(use, range(40)))
    assert not any(together)
    for key in "01234":
        assert sum(taken(idle, key) is not None for _ in range(PER_KEY + 1)) <= PER_KEY
