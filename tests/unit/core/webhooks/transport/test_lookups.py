from __future__ import annotations

import threading
from concurrent.futures import wait

import pytest

from core.webhooks.transport.lookups import Lookups, LookupsBusy


def lookups() -> Lookups:
    return Lookups(threads=3, per_owner=2, wait_seconds=0.05)


def test_limit_of_an_owner() -> None:
    """An owner has a limit, and other owners their own."""
    over, running = threading.Event(), lookups()
    hung = [running.start("mallory", over.wait) for _ in range(2)]
    with pytest.raises(LookupsBusy):
        running.start("mallory", over.wait)
    assert running.start("ana", lambda: 1).result(5) == 1
    over.set()
    wait(hung, 5)


def test_limit_of_all() -> None:
    """When all threads are taken, a lookup is refused, and does not wait behind them."""
    over, running = threading.Event(), lookups()
    hung = [running.start(owner, over.wait) for owner in ("mallory", "mallory", "eve")]
    with pytest.raises(LookupsBusy):
        running.start("ana", over.wait)
    over.set()
    wait(hung, 5)


def test_room_is_given_back() -> None:
    """A lookup that ends, even with an error, makes room for one that waits."""
    over, running = threading.Event(), Lookups(threads=1, wait_seconds=5)

    def fail() -> None:
        over.wait(5)
        raise OSError

    failing = running.start("ana", fail)
    threading.Timer(0.05, over.set).start()
    assert running.start("ana", lambda: 1).result(5) == 1
    assert isinstance(failing.exception(), OSError)
