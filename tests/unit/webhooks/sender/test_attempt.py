from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from core.dependencies import Settings, dependencies
from core.errors import DeliveryError, Refused
from core.webhooks.deliveries.store import Attempt
from core.webhooks.endpoints.store import Key
from core.webhooks.transport import signing
from tests.unit.webhooks.sender.conftest import URL, Bench, answered, message
from webhooks.sender.attempt import MASK, next_wait, shown


def test_what_is_sent(bench: Bench) -> None:
    """The stored bytes go to the endpoint's URL, signed so that an independent verifier accepts them."""
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


@pytest.mark.parametrize(
    ("format", "media_type"), [("cloudevents", "application/cloudevents+json"), ("slack", "application/json")]
)
def test_media_type(bench: Bench, format: str, media_type: str) -> None:
    """The media type is that of the format in which it was stored, whatever the endpoint's is by now."""
    delivery = bench.delivery(bench.endpoint(), format=format)
    bench.send(delivery)
    assert bench.receiver.requests[0]["headers"]["content-type"] == media_type


def test_a_jobs_own(bench: Bench) -> None:
    """What a job's URL gets is signed with the owner's default secret."""
    _, delivery = bench.of_job()
    bench.send(delivery)
    (request,) = bench.receiver.requests
    assert request["url"] == URL
    Webhook(bench.secrets["default"]).verify(request["body"], request["headers"])


def test_each_attempt_is_signed_anew(bench: Bench) -> None:
    """The id and the bytes stay the same over all attempts; the timestamp, and with it the signature, does not."""
    bench.receiver.answer = answered(500)
    delivery = bench.delivery(bench.endpoint())
    for _ in range(3):
        bench.send(bench.now(delivery))
        bench.clock.advance(500)
    sent = [request["headers"] for request in bench.receiver.requests]
    assert {headers["webhook-id"] for headers in sent} == {delivery.event_id}
    assert len({headers["webhook-timestamp"] for headers in sent}) == 3
    assert len({headers["webhook-signature"] for headers in sent}) == 3
    assert len({request["body"] for request in bench.receiver.requests}) == 1


def test_rotation(bench: Bench) -> None:
    """During the grace both secrets sign, the current one first; after it the old one does not, to the second."""
    endpoint = bench.endpoint()
    old = bench.secrets[endpoint.endpoint_id]
    key, new = bench.of.endpoints_with_secrets.make_key("ana", endpoint.endpoint_id, signing_kind="hmac")
    expiry = int(bench.clock.time) + 60
    bench.edit(endpoint, keys=(key, replace(endpoint.keys[0], expires_at=expiry)))
    bench.send(bench.delivery(endpoint))
    bench.clock.advance_to(expiry)
    bench.send(bench.delivery(endpoint))
    during, after = bench.receiver.requests
    assert len(during["headers"]["webhook-signature"].split()) == 2
    for secret in (old, str(new)):
        Webhook(secret).verify(during["body"], during["headers"])
    assert "x-signature-previous" in during["headers"]
    assert len(after["headers"]["webhook-signature"].split()) == 1
    Webhook(str(new)).verify(after["body"], after["headers"])


def test_ed25519(bench: Bench) -> None:
    """An endpoint that asked for ed25519 gets that."""
    endpoint = bench.endpoint(signing="ed25519")
    bench.send(bench.delivery(endpoint))
    (request,) = bench.receiver.requests
    public = endpoint.keys[0].public
    assert public is not None
    signing.verify(public, request["headers"], request["body"], now=bench.clock.time)
    assert "x-signature" not in request["headers"]


def test_own_headers(bench: Bench) -> None:
    """The caller's headers are sent with their values, and the log shows only that they were."""
    delivery = bench.delivery(bench.endpoint(headers={"authorization": "Bearer topsecret", "x-team": "blue"}))
    bench.send(delivery)
    (request,) = bench.receiver.requests
    assert (request["headers"]["authorization"], request["headers"]["x-team"]) == ("Bearer topsecret", "blue")
    logged = bench.last(delivery).request_headers
    assert (logged["authorization"], logged["x-team"]) == (MASK, MASK)
    assert logged["webhook-signature"] == request["headers"]["webhook-signature"]
    assert set(logged) == set(request["headers"])


def test_own_headers_never_win(bench: Bench) -> None:
    """Though some got past the check, a caller's headers replace none of ours."""
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
    """A connection may be used again for the same endpoint in the same version, and for nothing else."""
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
    """Everything but 2xx fails, 3xx included, and the log says by which class and why."""
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
    """Any 2xx is a success."""
    bench.receiver.answer = answered(status, b"thanks", content_type="text/plain")
    delivery = bench.delivery(bench.endpoint())
    bench.send(delivery)
    attempt = bench.last(delivery)
    assert (attempt.error, attempt.status, attempt.body) == (None, status, "thanks")
    assert attempt.response_headers["content-type"] == "text/plain"
    assert bench.now(delivery).status == "delivered"


def test_a_secret_that_cannot_sign(bench: Bench) -> None:
    """A damaged secret fails the attempt, with what to do about it; nothing is sent unsigned."""
    endpoint = bench.endpoint()
    sealed = bench.of.endpoints_with_secrets._vault.seal("whsec_!", owner="ana", endpoint_id=endpoint.endpoint_id)
    bench.edit(endpoint, keys=(Key(sealed=sealed),))
    delivery = bench.delivery(endpoint)
    assert bench.send(delivery) == []
    assert bench.receiver.requests == []
    assert (bench.last(delivery).error, "otate" in str(bench.last(delivery).message)) == ("signing", True)


def test_what_was_cut(bench: Bench) -> None:
    """The log says when an answer was longer than what is kept."""
    bench.receiver.answer = answered(200, b"x" * 10, truncated=True)
    delivery = bench.delivery(bench.endpoint())
    bench.send(delivery)
    assert bench.last(delivery).truncated


def test_duration(bench: Bench) -> None:
    """The time that an attempt took is in milliseconds."""
    bench.receiver.meanwhile = lambda: bench.clock.advance(1.25)
    delivery = bench.delivery(bench.endpoint())
    bench.send(delivery)
    assert 1250 <= bench.last(delivery).duration_ms < 2000


@pytest.mark.parametrize("probe", [False, True])
@pytest.mark.parametrize("manual", [False, True])
def test_trigger(bench: Bench, manual: bool, probe: bool) -> None:
    """The log says what an attempt was made for."""
    delivery = bench.delivery(bench.endpoint())
    bench.send(message(delivery, manual=manual, probe=probe))
    assert bench.last(delivery).trigger == ("manual" if manual else "probe" if probe else "automatic")


def test_nothing_secret_is_logged(bench: Bench, logged: Callable[[], list[dict[str, Any]]]) -> None:
    """Neither secret, nor the token in the URL, nor payload, nor answer, nor a header's value is logged."""
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
    """What is UTF-8, but for a character that was cut at the end, is kept as text; all else as base64, whole."""
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
    """Text that is cut anywhere is shown as text."""
    found = shown(text.encode()[:cut])
    assert "body_is_base64" not in found
    assert text.startswith(found["body"])


@given(st.integers(0, 6), st.sampled_from([500, 410, None]))
def test_next_wait(tries: int, status: int | None) -> None:
    """The wait is that of the schedule's next try; after the last, or from one who is gone, there is none."""
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
