"""Tests of webhooks (rest.long_poll.webhook_ping)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from core import ids
from core.dependencies import Dependencies, dependencies
from core.jobs import JobStore
from core.webhooks.deliveries.model import Attempt, delivery_id, draft
from core.webhooks.endpoints.cipher import SecretCipher
from core.webhooks.endpoints.store import Endpoints
from rest.long_poll import handler as module
from tests.unit.examples import FakeClock
from tests.unit.http_calls import Answer, call, problem


@pytest.fixture
def parts(environment: dict[str, str], store: JobStore, deliveries_table: str) -> Dependencies:
    return dependencies


@pytest.fixture
def webhook_id(parts: Dependencies, dynamodb: Any, jobs_table: str, secrets_key: str, kms: Any) -> str:
    endpoints = Endpoints(dynamodb, jobs_table, SecretCipher(kms, secrets_key))
    endpoint, _ = endpoints.draft("ana", url="https://example.com/h", events=("document.failed",))
    endpoints.create(endpoint)
    return endpoint.endpoint_id


def ping(webhook_id: str, **options: Any) -> Answer:
    return call(module.handler, "POST", f"/webhooks/{webhook_id}/test", **options)


def pings(parts: Dependencies, owner: str = "ana") -> list[Any]:
    return [json.loads(body) for body in parts.owner_log.page(owner)[0]]


def responding(parts: Dependencies, webhook_id: str, clock: FakeClock, **outcome: Any) -> Callable[[float], None]:
    """A sleep that sends the ping in its third call, as dispatch and sender do, and records the response."""

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if len(clock.sleeps) == 3:
            (event,) = pings(parts)
            facts = {"event": "ping", "owner": "ana", "format": "recado", "body": json.dumps(event)}
            delivery = parts.deliveries.create(
                draft(
                    event_id=event["event_id"],
                    endpoint_id=webhook_id,
                    now=time.time(),
                    retention_seconds=60,
                    single=True,
                    **facts,
                )
            )
            claimed = parts.deliveries.claim(delivery.delivery_id, attempts=0, manual=True)
            assert claimed is not None
            attempt = Attempt(number=1, at="now", trigger="manual", url="https://example.com/h", **outcome)
            parts.deliveries.record(claimed, attempt, wait=None)

    return sleep


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        ({"status": 204, "response_headers": {"content-type": "text/plain"}, "body": "ok"}, "delivered"),
        ({"status": 500, "error": "http_5xx"}, "failed"),
        ({"error": "blocked", "message": "No."}, "failed"),
    ],
)
def test_ping(
    parts: Dependencies,
    webhook_id: str,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    outcome: dict[str, Any],
    status: str,
) -> None:
    """A ping is written to the owner's log, and the endpoint's response is returned as soon as it exists."""
    monkeypatch.setattr(time, "sleep", responding(parts, webhook_id, clock, **outcome))
    seen = ping(webhook_id)
    (event,) = pings(parts)
    assert (event["event"], event["endpoint_id"]) == ("ping", webhook_id)
    assert (seen.status, seen.json["status"], seen.json["event_id"]) == (200, status, event["event_id"])
    (attempt,) = seen.json["attempts"]
    assert {name: attempt[name] for name in outcome} == outcome
    assert json.loads(seen.json["payload"]) == event
    assert seen.json["links"]["self"] == f"https://api.example.com/v1/deliveries/{seen.json['delivery_id']}"
    assert seen.headers["cache-control"] == "no-store"
    assert len(clock.sleeps) == 3


def test_no_response_in_time(parts: Dependencies, webhook_id: str, clock: FakeClock) -> None:
    """After the longest wait, a 202 says where the response will be."""
    seen = ping(webhook_id)
    (event,) = pings(parts)
    identifier = delivery_id(event["event_id"], webhook_id)
    assert seen.status == 202
    assert seen.json == {
        "delivery_id": identifier,
        "links": {"self": f"https://api.example.com/v1/deliveries/{identifier}"},
    }
    assert seen.headers["location"] == f"../../deliveries/{identifier}"
    assert seen.headers["retry-after"] == "1"
    assert sum(clock.sleeps) == pytest.approx(25)


def test_disabled_endpoint(
    parts: Dependencies, webhook_id: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disabled endpoint can be tested."""
    parts.endpoints.disable(parts.endpoints.get("ana", webhook_id), reason="gone", also=[])
    monkeypatch.setattr(time, "sleep", responding(parts, webhook_id, clock, status=204))
    assert ping(webhook_id).status == 200


def test_default_endpoint(parts: Dependencies, dynamodb: Any, jobs_table: str, secrets_key: str, kms: Any) -> None:
    """The default endpoint has no URL to test: 409, or 404 before it exists."""
    problem(ping("default"), 404, "not_found")
    endpoints = Endpoints(dynamodb, jobs_table, SecretCipher(kms, secrets_key))
    endpoint, _ = endpoints.draft("ana", "default")
    endpoints.create(endpoint)
    problem(ping("default"), 409, "conflict")
    assert pings(parts) == []


def test_endpoint_of_other_owner(parts: Dependencies, webhook_id: str, clock: FakeClock) -> None:
    """Another owner's endpoint is a 404, and nothing is sent."""
    foreign = ping(webhook_id, owner="ben")
    problem(foreign, 404, "not_found")
    for unknown in (ids.new("wh"), "x", webhook_id.lower()):
        assert ping(unknown, owner="ben").json == foreign.json
    assert pings(parts) == pings(parts, "ben") == []


def test_scope_of_ping(parts: Dependencies, webhook_id: str, clock: FakeClock) -> None:
    """A test needs the scope to write."""
    problem(ping(webhook_id, scopes="jobs:read jobs:write search webhooks:read"), 403, "forbidden")
    assert pings(parts) == []
