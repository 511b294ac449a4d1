from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from core.dependencies import Settings, dependencies
from core.errors import DeliveryError, Refused
from core.webhooks.deliveries.model import Attempt
from core.webhooks.endpoints.model import Key
from tests.unit.webhooks.sender.conftest import URL, Bench, answered, message
from webhooks.sender.attempt import MASK, next_wait, shown


def test_request(bench: Bench) -> None:
    """The stored bytes are sent to the endpoint's URL, with a signature that an independent library verifies."""
    endpoint = bench.endpoint()
    delivery = bench.delivery(endpoint)
    assert bench.send(delivery) == []
    (request,) = bench.receiver.requests
    assert (request["url"], request["body"]) == (URL, delivery.body.encode())
    assert request["deadline_seconds"] == 15
    assert request["policy"] is bench.of.policy
    assert request["headers"]["webhook-id"] == delivery.event_id
    assert request["headers"]["content-type"] == "application/json"
    Webhook(bench.secrets[endpoint.endpoint_id]).verify(request["body"], request["headers"])


def test_own_headers(bench: Bench) -> None:
    """Custom headers are sent with their values, and logged without them."""
    delivery = bench.delivery(bench.endpoint(headers={"authorization": "Bearer topsecret", "x-team": "blue"}))
    bench.send(delivery)
    (request,) = bench.receiver.requests
    assert (request["headers"]["authorization"], request["headers"]["x-team"]) == ("Bearer topsecret", "blue")
    logged = bench.last(delivery).request_headers
    assert (logged["authorization"], logged["x-team"]) == (MASK, MASK)
    assert logged["webhook-signature"] == request["headers"]["webhook-signature"]
    assert set(logged) == set(request["headers"])


def test_own_headers_do_not_replace_ours(bench: Bench) -> None:
    """Custom headers do not replace those of the sender."""
    forged = {
        "webhook-id": "forged",
        "webhook-signature": "forged",
        "content-type": "text/html",
        "user-agent": "x",
    }
    delivery = bench.delivery(bench.endpoint(headers=forged))
    bench.send(delivery)
    (request,) = bench.receiver.requests
    assert "forged" not in request["headers"].values()
    assert MASK not in bench.last(delivery).request_headers.values()


def test_connections(bench: Bench) -> None:
    """A connection is only reused for the same version of the same endpoint."""
    endpoint, other = bench.endpoint(), bench.endpoint()
    for each in (endpoint, other):
        bench.send(bench.delivery(each))
    bench.send(bench.delivery(endpoint))
    bench.edit(endpoint, description="new")
    bench.send(bench.delivery(endpoint))
    keys = [request["reuse_key"] for request in bench.receiver.requests]
    assert keys[0] == keys[2]
    assert len(set(keys)) == 3
    assert {request["connections"] for request in bench.receiver.requests} == {bench.of.connection_pool}


@pytest.mark.parametrize(
    ("answer", "error", "status"),
    [
        (answered(199), "http_1xx", 199),
        (answered(302), "http_3xx", 302),
        (answered(404), "http_4xx", 404),
        (answered(500, b"oops"), "http_5xx", 500),
        (DeliveryError("timeout", "no answer in time"), "timeout", None),
        (DeliveryError("dns", "no such host"), "dns", None),
        (Refused("a private address"), "blocked", None),
    ],
)
def test_failure(bench: Bench, answer: Any, error: str, status: int | None) -> None:
    """Every status except 2xx is a failure, and logged with error class and message."""
    bench.receiver.answer = answer
    delivery = bench.delivery(bench.endpoint())
    assert bench.send(delivery) == []
    attempt = bench.last(delivery)
    assert (attempt.error, attempt.status, attempt.number, attempt.trigger) == (error, status, 1, "automatic")
    assert (attempt.message is None) == (status is not None)
    assert attempt.request_headers["webhook-id"] == delivery.event_id
    assert bench.now(delivery).status == "pending"


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_success(bench: Bench, status: int) -> None:
    """Every 2xx status is a success."""
    bench.receiver.answer = answered(status, b"thanks", content_type="text/plain")
    delivery = bench.delivery(bench.endpoint())
    bench.send(delivery)
    attempt = bench.last(delivery)
    assert (attempt.error, attempt.status, attempt.body) == (None, status, "thanks")
    assert attempt.response_headers["content-type"] == "text/plain"
    assert bench.now(delivery).status == "delivered"


def test_a_secret_that_cannot_sign(bench: Bench) -> None:
    """A malformed secret fails the attempt, with what to do, and without a request."""
    endpoint = bench.endpoint()
    cipher = bench.of.endpoints_with_secrets._cipher
    encrypted = cipher.encrypt("whsec_!", owner="ana", endpoint_id=endpoint.endpoint_id)
    bench.edit(endpoint, keys=(Key(encrypted=encrypted),))
    delivery = bench.delivery(endpoint)
    assert bench.send(delivery) == []
    assert bench.receiver.requests == []
    assert (bench.last(delivery).error, "otate" in str(bench.last(delivery).message)) == ("signing", True)


def test_truncated(bench: Bench) -> None:
    """The attempt says whether the response was truncated."""
    bench.receiver.answer = answered(200, b"x" * 10, truncated=True)
    delivery = bench.delivery(bench.endpoint())
    bench.send(delivery)
    assert bench.last(delivery).truncated


def test_duration(bench: Bench) -> None:
    """The duration is in milliseconds."""
    bench.receiver.meanwhile = lambda: bench.clock.advance(1.25)
    delivery = bench.delivery(bench.endpoint())
    bench.send(delivery)
    assert 1250 <= bench.last(delivery).duration_ms < 2000


@pytest.mark.parametrize("probe", [False, True])
@pytest.mark.parametrize("manual", [False, True])
def test_trigger(bench: Bench, manual: bool, probe: bool) -> None:
    """The attempt says whether it was automatic, manual or a probe."""
    delivery = bench.delivery(bench.endpoint())
    bench.send(message(delivery, manual=manual, probe=probe))
    assert bench.last(delivery).trigger == ("manual" if manual else "probe" if probe else "automatic")


def test_nothing_secret_is_logged(bench: Bench, logged: Callable[[], list[dict[str, Any]]]) -> None:
    """Secrets, URL tokens, payloads, responses and header values are not logged."""
    bench.receiver.answer = answered(500, b"private answer")
    endpoint = bench.endpoint(headers={"authorization": "Bearer topsecret"})
    delivery = bench.delivery(endpoint)
    bench.send(delivery)
    lines = str(logged())
    assert delivery.delivery_id in lines
    words = (bench.secrets[endpoint.endpoint_id], "token=t", "private answer", "a\\u00f1o", "topsecret")
    assert not any(word in lines for word in words)


@given(st.binary(max_size=40))
def test_shown(body: bytes) -> None:
    """UTF-8 is kept as text, except for a character cut at the end; other bytes as base64."""
    found = shown(body)
    if found.get("body_is_base64"):
        assert base64.b64decode(found["body"]) == body
        with pytest.raises(UnicodeDecodeError):
            body.decode()
    else:
        assert body.startswith(found["body"].encode())
        assert len(body) - len(found["body"].encode()) <= 3


@given(st.text(max_size=20), st.integers(0, 80))
def test_shown_text(text: str, cut: int) -> None:
    """Text that is cut anywhere is kept as text."""
    found = shown(text.encode()[:cut])
    assert "body_is_base64" not in found
    assert text.startswith(found["body"])


@given(st.integers(0, 6), st.sampled_from([500, 410, None]))
def test_next_wait(tries: int, status: int | None) -> None:
    """The wait is that of the next try. After the last one and after a 410 there is none."""
    schedule = (0, 100, 3000, 900)
    with pytest.MonkeyPatch.context() as patch:
        settings = Settings({"WEBHOOK_SCHEDULE_SECONDS": json.dumps(schedule)})
        patch.setitem(vars(dependencies), "settings", settings)
        claimed: Any = type("Claimed", (), {"tries": tries})
        wait = next_wait(claimed, Attempt(number=1, at="", trigger="automatic", url="", status=status))
    if tries >= 3 or status == 410:
        assert wait is None
    else:
        assert wait is not None
        assert 0.8 * schedule[tries + 1] <= wait <= 1.2 * schedule[tries + 1]
