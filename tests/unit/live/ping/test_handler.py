"""Pings to open WebSockets (live.ping)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from core import ids
from core.auth import KeyStore
from core.jobs import JobStore, links
from core.live.subscriptions import Subscriptions
from kinds.document.kind import DOCUMENT
from live.ping import handler as module
from live.ping.handler import handler
from tests.unit.examples import job
from tests.unit.gateway import GONE, THROTTLED, Gateway

NOW = time.time()
JOB = ids.new("job")
PING = [{"type": "ping"}]


@pytest.fixture
def earlier(environment: dict[str, str], dynamodb: Any, jobs_table: str, keys_table: str) -> Subscriptions:
    """Subscriptions with a clock that is some minutes behind."""
    return Subscriptions(dynamodb, jobs_table, clock=lambda: NOW - 300)


@pytest.fixture
def subscriptions(environment: dict[str, str], dynamodb: Any, jobs_table: str, keys_table: str) -> Subscriptions:
    return Subscriptions(dynamodb, jobs_table)


def test_ping(earlier: Subscriptions, gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every connection gets one ping, also over several batches."""
    monkeypatch.setattr(module, "BATCH_SIZE", 4)
    connections = [earlier.connect(f"c{number}=", owner="ana") for number in range(10)]
    earlier.subscribe(connections[0], JOB)
    earlier.follow(connections[1], "document")
    handler({}, None)
    assert {one: gateway.received(one) for one in list(gateway.sent)} == {
        one.connection_id: PING for one in connections
    }


def test_gone_connections(
    earlier: Subscriptions,
    subscriptions: Subscriptions,
    gateway: Gateway,
    logged: Callable[[], list[dict[str, Any]]],
) -> None:
    """A connection that is gone is deleted with its subscriptions; one that failed is not."""
    gone, throttled = earlier.connect("gone=", owner="ana"), earlier.connect("throttled=", owner="ana")
    for one in (gone, throttled):
        earlier.subscribe(one, JOB)
        earlier.follow(one, "document")
    gateway.errors = {"gone=": GONE, "throttled=": THROTTLED}
    handler({}, None)
    assert subscriptions.connection("gone=") is None
    assert subscriptions.connection("throttled=") == throttled
    assert [one.connection_id for one in subscriptions.subscribers(JOB).subscriptions] == ["throttled="]
    assert subscriptions.followers("ana", "document") == ["throttled="]
    assert gateway.closed == []


# ── revocations ──────────────────────────────────────────────────────────────────────────────────────────────


def test_revoked_owner(
    earlier: Subscriptions, subscriptions: Subscriptions, gateway: Gateway, dynamodb: Any, keys_table: str
) -> None:
    """Connections that are older than the owner's epoch are closed and deleted, not pinged. Others are pinged."""
    keys = KeyStore(dynamodb, keys_table)
    keys.revoke(keys.create(owner="ana")[1].key_id)
    for name, owner, epoch in (("old=", "ana", 0), ("new=", "ana", 1), ("ben=", "ben", 0)):
        earlier.follow(earlier.connect(name, owner=owner, epoch=epoch), "document")
    handler({}, None)
    assert gateway.closed == ["old="]
    assert {name for name, sent in gateway.sent.items() if sent} == {"new=", "ben="}
    assert subscriptions.connection("old=") is None
    assert subscriptions.followers("ana", "document") == ["new="]


def test_ended_link(earlier: Subscriptions, gateway: Gateway, dynamodb: Any, jobs_table: str) -> None:
    """Connections by a link of another key, or to a job that is gone, are closed. One whose key the version before
    did not store stays open.
    """
    jobs = JobStore(dynamodb, jobs_table)
    found = jobs.submit(DOCUMENT, job(at=NOW, link_key=links.make_key())).job
    for name, job_id, link in (
        ("same=", found.job_id, links.key_fingerprint(found)),
        ("other=", found.job_id, "0" * 16),
        ("before=", found.job_id, None),
        ("gone=", JOB, links.key_fingerprint(found)),
    ):
        earlier.connect(name, owner="ana", job_id=job_id, link=link)
    handler({}, None)
    assert set(gateway.closed) == {"other=", "gone="}
    assert set(gateway.sent) == {"same=", "before="}


def test_failed_close(earlier: Subscriptions, subscriptions: Subscriptions, gateway: Gateway) -> None:
    """If a connection cannot be closed, it is deleted all the same, and gets no more events."""
    earlier.subscribe(earlier.connect("a=", owner="ana", job_id=JOB, link="x"), JOB)
    gateway.errors["a="] = THROTTLED
    handler({}, None)
    assert subscriptions.connection("a=") is None
    assert subscriptions.subscribers(JOB).subscriptions == []
