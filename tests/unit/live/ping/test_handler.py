from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from core import ids
from core.live.subscriptions import CONNECTING_SECONDS, Subscriptions
from live.ping import handler as module
from live.ping.handler import handler
from tests.unit.gateway import GONE, THROTTLED, Gateway

NOW = time.time()
JOB = ids.new("job")
PING = [{"type": "ping"}]


@pytest.fixture
def earlier(environment: dict[str, str], dynamodb: Any, jobs_table: str) -> Subscriptions:
    """What connects by this has been connected for some minutes."""
    return Subscriptions(dynamodb, jobs_table, clock=lambda: NOW - 300)


@pytest.fixture
def subscriptions(environment: dict[str, str], dynamodb: Any, jobs_table: str) -> Subscriptions:
    return Subscriptions(dynamodb, jobs_table)


def test_each_is_pinged_once(earlier: Subscriptions, gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every connection hears one ping, whatever it listens to, also where they come in several portions."""
    monkeypatch.setattr(module, "AT_ONCE", 4)
    everybody = [earlier.connect(f"c{number}=", owner="ana") for number in range(10)]
    earlier.subscribe(everybody[0], JOB)
    earlier.follow(everybody[1], "document")
    handler({}, None)
    assert {one: gateway.heard(one) for one in list(gateway.sent)} == {
        one.connection_id: PING for one in everybody
    }


def test_nobody(environment: dict[str, str], jobs_table: str, gateway: Gateway) -> None:
    """Where nobody is connected nothing happens."""
    handler({}, None)
    assert gateway.sent == {}


def test_those_who_are_gone(
    earlier: Subscriptions,
    subscriptions: Subscriptions,
    gateway: Gateway,
    logged: Callable[[], list[dict[str, Any]]],
) -> None:
    """Who vanished without a word is forgotten with all that it listened to; who could not be reached is not."""
    gone, throttled = earlier.connect("gone=", owner="ana"), earlier.connect("throttled=", owner="ana")
    for one in (gone, throttled):
        earlier.subscribe(one, JOB)
        earlier.follow(one, "document")
    gateway.troubles = {"gone=": GONE, "throttled=": THROTTLED}
    handler({}, None)
    assert subscriptions.connection("gone=") is None
    assert subscriptions.connection("throttled=") == throttled
    assert [one.connection_id for one in subscriptions.subscribers(JOB).subscriptions] == ["throttled="]
    assert subscriptions.followers("ana", "document") == ["throttled="]
    assert gateway.closed == []


def test_a_handshake_is_left_alone(subscriptions: Subscriptions, gateway: Gateway) -> None:
    """A connection whose handshake is not over seems to be gone, and is not to be forgotten for that."""
    shaking_hands = subscriptions.connect("new=", owner="ana")
    subscriptions.subscribe(shaking_hands, JOB)
    gateway.troubles["new="] = GONE
    handler({}, None)
    assert subscriptions.connection("new=") == shaking_hands
    assert len(subscriptions.subscribers(JOB).subscriptions) == 1


def test_soon_after_the_handshake(
    environment: dict[str, str], dynamodb: Any, jobs_table: str, subscriptions: Subscriptions, gateway: Gateway
) -> None:
    """Some seconds later it is like any other."""
    Subscriptions(dynamodb, jobs_table, clock=lambda: NOW - CONNECTING_SECONDS - 1).connect("a=", owner="ana")
    gateway.troubles["a="] = GONE
    handler({}, None)
    assert subscriptions.connection("a=") is None
