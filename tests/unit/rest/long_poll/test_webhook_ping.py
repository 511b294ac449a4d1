"""Tests of webhooks (rest.long_poll.webhook_ping)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.dependencies import Dependencies, dependencies
from core.jobs import JobStore
from core.webhooks.deliveries.model import delivery_id
from core.webhooks.endpoints.cipher import SecretCipher
from core.webhooks.endpoints.store import Endpoints
from rest.long_poll import handler as module
from tests.unit.examples import FakeClock
from tests.unit.http_calls import Answer, call, problem


@pytest.fixture
def parts(environment: dict[str, str], store: JobStore, deliveries_table: str) -> Dependencies:
    return dependencies


@pytest.fixture
def endpoints(parts: Dependencies, dynamodb: Any, jobs_table: str, secrets_key: str, kms: Any) -> Endpoints:
    return Endpoints(dynamodb, jobs_table, SecretCipher(kms, secrets_key))


def ping(webhook_id: str) -> Answer:
    return call(module.handler, "POST", f"/webhooks/{webhook_id}/test")


def pings(parts: Dependencies) -> list[Any]:
    return [json.loads(body) for body in parts.owner_log.page("ana")[0]]


def test_no_response_in_time(parts: Dependencies, endpoints: Endpoints, clock: FakeClock) -> None:
    """After the longest wait, a 202 says where the response will be."""
    endpoint, _ = endpoints.draft("ana", url="https://example.com/h", events=("document.failed",))
    endpoints.create(endpoint)
    webhook_id = endpoint.endpoint_id
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


def test_default_endpoint(parts: Dependencies, endpoints: Endpoints) -> None:
    """The default endpoint has no URL to test: 409, or 404 before it exists."""
    problem(ping("default"), 404, "not_found")
    endpoint, _ = endpoints.draft("ana", "default")
    endpoints.create(endpoint)
    problem(ping("default"), 409, "conflict")
    assert pings(parts) == []
