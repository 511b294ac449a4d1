from __future__ import annotations

import threading
import time

import pytest

from core.webhooks.deliveries.health import Health
from webhooks.sender import in_flight
from webhooks.sender.destinations import Host
from webhooks.sender.in_flight import HOST_ATTEMPTS, NEW_HOST_ATTEMPTS, OWNER_ATTEMPTS, InFlight, Running


def host(name: str = "host#a:443", *, owner: str = "ana", verified: bool = True) -> Host:
    return Host(Health(owner=owner, destination=name), 0, 10, verified)


def started(attempts: InFlight, *hosts: Host, tries: int = 200) -> list[Running]:
    """As many attempts as there is room for, to these hosts in turn."""
    running = [attempts.start(hosts[number % len(hosts)]) for number in range(tries)]
    return [each for each in running if each]


@pytest.fixture
def attempts() -> InFlight:
    return InFlight(slow_until=time.monotonic() + 60)


@pytest.mark.parametrize(("verified", "most"), [(True, HOST_ATTEMPTS), (False, NEW_HOST_ATTEMPTS)])
def test_host(attempts: InFlight, verified: bool, most: int) -> None:
    """A host has a limit, which is small until it has answered 2xx. Another one has room."""
    assert len(started(attempts, host(verified=verified))) == most
    assert attempts.start(host("host#a:8443", verified=verified))
    assert attempts.start(host(owner="ben", verified=verified))


def test_owner(attempts: InFlight) -> None:
    """All hosts of an owner together have a limit. Another owner has room."""
    hosts = [host(f"host#{number}:443") for number in range(10)]
    assert len(started(attempts, *hosts)) == attempts.total == OWNER_ATTEMPTS
    assert attempts.start(host(owner="ben"))


def test_end(attempts: InFlight) -> None:
    """An attempt that ends, however often that is said, makes room for one."""
    first, *_ = started(attempts, host())
    for _ in range(3):
        attempts.end(first)
    assert len(started(attempts, host())) == 1


def test_first_success(attempts: InFlight) -> None:
    """A host has the room of a known one once an attempt has succeeded, in other batches as well."""
    new = host(verified=False)
    first, *_ = started(attempts, new)
    new.is_verified = True
    attempts.end(first)
    assert len(started(attempts, host(verified=False))) == HOST_ATTEMPTS - NEW_HOST_ATTEMPTS + 1


def test_wait(attempts: InFlight) -> None:
    """A start waits for the end of another attempt, but not for long."""
    first, *_ = started(attempts, host())
    assert attempts.start(host(), wait_seconds=0.01) is None
    threading.Timer(0.05, attempts.end, [first]).start()
    assert attempts.start(host(), wait_seconds=10)


def test_full(attempts: InFlight, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host is full if there is no room, and the attempts are slow."""
    assert not attempts.is_full(host())
    started(attempts, host())
    assert (attempts.is_full(host()), attempts.has_slow) == (False, False)
    monkeypatch.setattr(in_flight, "SLOW_SECONDS", -1)
    assert (attempts.is_full(host()), attempts.has_slow) == (True, True)
    assert not attempts.is_full(host(owner="ben"))


def test_end_of_the_invocation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Near its end no attempt of an owner with a slow one starts. Those of other owners do."""
    monkeypatch.setattr(in_flight, "SLOW_SECONDS", -1)
    attempts = InFlight(slow_until=time.monotonic() - 1)
    assert attempts.start(host())
    assert attempts.start(host("host#b:443")) is None
    assert attempts.start(host(owner="ben"))
