from __future__ import annotations

import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import events, ids
from core.dependencies import Dependencies
from core.webhooks.deliveries.model import Attempt, Delivery, delivery_id, draft, is_delivery_id
from tests.unit.http_calls import Answer, problem

Api = Callable[..., Answer]
DAY = 86_400
BODY = '{"event":"document.indexed","a":"\\u00e9"}'
UNKNOWN = "dlv_01JDXQ3V8N2M4K6H8G0F2E4D6C_default"


@pytest.fixture
def webhook_id(api: Api) -> str:
    found: str = api("POST", "/webhooks", {"url": "https://example.com/h", "events": ["*"]}).json["webhook_id"]
    return found


def made(
    deployed: Dependencies, endpoint_id: str, *, owner: str = "ana", ago: float = 0, **facts: Any
) -> Delivery:
    """A delivery that was created so many seconds ago."""
    drafted = draft(
        event_id=ids.new("evt"),
        endpoint_id=endpoint_id,
        now=time.time() - ago,
        retention_seconds=30 * DAY,
        **{"event": "document.indexed", "owner": owner, "format": "recado", "body": BODY} | facts,
    )
    return deployed.deliveries.create(drafted)


def attempted(
    deployed: Dependencies, delivery: Delivery, *, wait: int | None = None, manual: bool = False, **outcome: Any
) -> Delivery:
    """The delivery after one attempt with this outcome."""
    store = deployed.deliveries
    claimed = store.claim(delivery.delivery_id, attempts=delivery.attempts, manual=manual)
    assert claimed is not None
    attempt = Attempt(
        number=claimed.attempts + 1,
        at=events.timestamp(time.time()),
        trigger="manual" if manual else "automatic",
        url="https://example.com/h",
        **outcome,
    )
    recorded = store.record(claimed, attempt, wait=wait)
    assert recorded is not None
    return recorded


REFUSAL: dict[str, Any] = {
    "status": 500,
    "error": "http_5xx",
    "duration_ms": 12,
    "request_headers": {"webhook-signature": "v1,x"},
    "response_headers": {"content-type": "text/plain"},
    "body": "no",
    "truncated": True,
}


# ── one delivery ─────────────────────────────────────────────────────────────────────────────────────────────


def test_pending(api: Api, deployed: Dependencies, webhook_id: str) -> None:
    """A new delivery shows its event, its payload and the time of its first attempt."""
    delivery = made(deployed, webhook_id, job_id="job_1", sequence=3)
    answer = api("GET", f"/deliveries/{delivery.delivery_id}")
    assert answer.status == 200
    assert answer.json == {
        "delivery_id": delivery.delivery_id,
        "webhook_id": webhook_id,
        "event": "document.indexed",
        "event_id": delivery.event_id,
        "job_id": "job_1",
        "sequence": 3,
        "format": "recado",
        "status": "pending",
        "attempt_count": 0,
        "next_attempt_at": events.timestamp(delivery.due),
        "waits_for": None,
        "created_at": delivery.created_at,
        "expires_at": events.timestamp(delivery.expires_at),
        "links": {"self": f"https://api.example.com/v1/deliveries/{delivery.delivery_id}"},
        "attempts": [],
        "payload": BODY,
    }


def test_attempts(api: Api, deployed: Dependencies, webhook_id: str) -> None:
    """All attempts are shown, oldest first, with request and response."""
    delivery = attempted(deployed, made(deployed, webhook_id), wait=300, **REFUSAL)
    delivery = attempted(deployed, delivery, error="timeout", message="Too slow.", wait=300)
    shown = api("GET", f"/deliveries/{delivery.delivery_id}").json
    assert shown["attempts"][0] == {
        "number": 1,
        "at": shown["attempts"][0]["at"],
        "trigger": "automatic",
        "url": "https://example.com/h",
        "message": None,
        "body_is_base64": False,
        **REFUSAL,
    }
    second = shown["attempts"][1]
    assert [second[name] for name in ("number", "status", "error", "message", "body")] == [
        2,
        None,
        "timeout",
        "Too slow.",
        None,
    ]
    assert (shown["status"], shown["attempt_count"]) == ("pending", 2)
    assert shown["next_attempt_at"] == events.timestamp(delivery.due)


@pytest.mark.parametrize(
    ("destination", "shown"),
    [("host#example.com:443", "host_circuit"), (None, "circuit")],
    ids=["host", "endpoint"],
)
def test_held(api: Api, deployed: Dependencies, webhook_id: str, destination: str | None, shown: str) -> None:
    """A delivery that is held says which circuit it waits for, in lists as well."""
    delivery = made(deployed, webhook_id)
    deployed.deliveries.hold(
        delivery.delivery_id,
        owner=delivery.owner,
        destination=destination or delivery.destination,
        attempts=0,
        queued_at=delivery.queued_at,
    )
    assert api("GET", f"/deliveries/{delivery.delivery_id}").json["waits_for"] == shown
    (listed,) = api("GET", f"/webhooks/{webhook_id}/deliveries").json["deliveries"]
    assert listed["waits_for"] == shown


# ── an endpoint's deliveries ─────────────────────────────────────────────────────────────────────────────────


def listed(api: Api, webhook_id: str, **query: str) -> list[str]:
    answer = api("GET", f"/webhooks/{webhook_id}/deliveries", query=query)
    assert answer.status == 200, answer
    return [shown["delivery_id"] for shown in answer.json["deliveries"]]


def test_summary(api: Api, deployed: Dependencies, webhook_id: str) -> None:
    """A list shows deliveries without payload, and only the last attempt, without body."""
    delivery = attempted(deployed, made(deployed, webhook_id), wait=300, **REFUSAL)
    whole = api("GET", f"/deliveries/{delivery.delivery_id}").json
    (line,) = api("GET", f"/webhooks/{webhook_id}/deliveries").json["deliveries"]
    del whole["payload"]
    (last,) = whole.pop("attempts")
    shown = ("number", "at", "trigger", "duration_ms", "status", "error", "message")
    assert line == whole | {"last_attempt": {name: last[name] for name in shown}}


def test_default(api: Api, deployed: Dependencies) -> None:
    """Deliveries to jobs' own URLs are listed under the default endpoint, if it exists."""
    delivery = made(deployed, "default", url="https://example.com/job")
    problem(api("GET", "/webhooks/default/deliveries"), 404, "not_found")
    api("POST", "/webhooks/default/rotate-secret")
    assert listed(api, "default") == [delivery.delivery_id]


def test_cursor_before_since(api: Api, deployed: Dependencies, webhook_id: str) -> None:
    """A page whose cursor is before `since` is empty and the last."""
    made(deployed, webhook_id, ago=2)
    made(deployed, webhook_id, ago=1)
    cursor = api("GET", f"/webhooks/{webhook_id}/deliveries", query={"limit": "1"}).json["cursor"]
    query = {"cursor": cursor, "since": events.timestamp(time.time() + 60)}
    answer = api("GET", f"/webhooks/{webhook_id}/deliveries", query=query)
    assert answer.json == {"deliveries": [], "cursor": None}


def packed(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"status": "sent"}, "status"),
        ({"event": "document.nothing"}, "event"),
        ({"event": "*"}, "event"),
        ({"since": "yesterday"}, "since"),
        ({"since": "2026-11-29T08:00:00 01:00"}, "since"),
        ({"limit": "0"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"cursor": ""}, "cursor"),
        ({"cursor": "x"}, "cursor"),
        ({"cursor": "ñ"}, "cursor"),
        ({"cursor": "_w"}, "cursor"),
        ({"cursor": packed("2026-11-29T08:00:00.000Z")}, "cursor"),
        ({"cursor": packed("2026-11-29T08:00:00.000Z#dlv_1")}, "cursor"),
        ({"cursor": packed(f"2026-11-29T08:00:00Z#{UNKNOWN}")}, "cursor"),
        ({"cursor": packed(f"2026-11-29T08:00:00.000Z#{UNKNOWN}") + "="}, "cursor"),
        ({"cursor": packed(f"2026-11-29T08:00:00.000Z#{UNKNOWN}\n")}, "cursor"),
    ],
)
def test_invalid_parameters(api: Api, webhook_id: str, query: dict[str, str], field: str) -> None:
    """An invalid parameter is a 422 with its name."""
    answer = api("GET", f"/webhooks/{webhook_id}/deliveries", query=query)
    assert problem(answer, 422, "invalid_request")["field"] == field


# ── redelivery ───────────────────────────────────────────────────────────────────────────────────────────────


def test_redeliver(
    api: Api, deployed: Dependencies, webhook_id: str, messages: Callable[[str], list[Any]]
) -> None:
    """The 202 has the location of the delivery, and the next attempt is queued as a manual one."""
    delivery = attempted(deployed, made(deployed, webhook_id), **REFUSAL)
    answer = api("POST", f"/deliveries/{delivery.delivery_id}/redeliver")
    assert (answer.status, answer.headers["location"]) == (202, f"../{delivery.delivery_id}")
    assert (answer.json["status"], answer.json["attempt_count"]) == ("failed", 1)
    (message,) = messages("WEBHOOKS_QUEUE_URL")
    assert (message["delivery_id"], message["attempts"], message["manual"]) == (delivery.delivery_id, 1, True)


def test_redeliver_to_a_job(api: Api, deployed: Dependencies, messages: Callable[[str], list[Any]]) -> None:
    """A delivery to a job's own URL can be redelivered while the default endpoint exists."""
    delivery = made(deployed, "default", url="https://example.com/job")
    path = f"/deliveries/{delivery.delivery_id}/redeliver"
    problem(api("POST", path), 409, "conflict")
    api("POST", "/webhooks/default/rotate-secret")
    assert api("POST", path).status == 202
    (message,) = messages("WEBHOOKS_QUEUE_URL")
    assert message["destination"] == delivery.destination


def test_redeliver_when_disabled(
    api: Api, deployed: Dependencies, webhook_id: str, messages: Callable[[str], list[Any]]
) -> None:
    """A redelivery to a disabled endpoint is accepted, to a deleted one refused."""
    delivery = made(deployed, webhook_id, status="discarded")
    api("PATCH", f"/webhooks/{webhook_id}", {"enabled": False})
    assert api("POST", f"/deliveries/{delivery.delivery_id}/redeliver").status == 202
    api("DELETE", f"/webhooks/{webhook_id}")
    refused = problem(api("POST", f"/deliveries/{delivery.delivery_id}/redeliver"), 409, "conflict")
    assert "deleted" in refused["detail"]
    assert len(messages("WEBHOOKS_QUEUE_URL")) == 1


def test_redeliver_during_an_attempt(
    api: Api, deployed: Dependencies, webhook_id: str, messages: Callable[[str], list[Any]]
) -> None:
    """During an attempt a redelivery is refused, because both would have the same number."""
    delivery = made(deployed, webhook_id)
    deployed.deliveries.claim(delivery.delivery_id, attempts=0)
    problem(api("POST", f"/deliveries/{delivery.delivery_id}/redeliver"), 409, "conflict")
    assert messages("WEBHOOKS_QUEUE_URL") == []


# ── other owners ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("method", "rest"), [("GET", ""), ("POST", "/redeliver")])
def test_not_found(
    api: Api,
    deployed: Dependencies,
    webhook_id: str,
    messages: Callable[[str], list[Any]],
    method: str,
    rest: str,
) -> None:
    """Another owner's, an expired and an unknown delivery are the same 404."""
    delivery = made(deployed, webhook_id)
    expired = made(deployed, webhook_id, ago=31 * DAY)
    foreign = api(method, f"/deliveries/{delivery.delivery_id}{rest}", owner="ben")
    problem(foreign, 404, "not_found")
    for unknown in (UNKNOWN, "x", webhook_id, delivery.delivery_id.lower(), f"{delivery.delivery_id}_x"):
        assert api(method, f"/deliveries/{unknown}{rest}").json == foreign.json
    assert api(method, f"/deliveries/{expired.delivery_id}{rest}").json == foreign.json
    assert messages("WEBHOOKS_QUEUE_URL") == []


def test_cursor_of_another_owner(api: Api, deployed: Dependencies, webhook_id: str) -> None:
    """A cursor of another owner gives access to nothing."""
    made(deployed, webhook_id, ago=1)
    made(deployed, webhook_id)
    cursor = api("GET", f"/webhooks/{webhook_id}/deliveries", query={"limit": "1"}).json["cursor"]
    theirs = api("POST", "/webhooks", {"url": "https://example.com/h", "events": ["*"]}, owner="ben").json
    answer = api("GET", f"/webhooks/{theirs['webhook_id']}/deliveries", query={"cursor": cursor}, owner="ben")
    assert answer.json == {"deliveries": [], "cursor": None}


@given(st.sampled_from(["wh", None]), st.text(max_size=3))
def test_forms_of_ids(prefix: str | None, noise: str) -> None:
    """Ids from `delivery_id` are valid, longer texts are not."""
    made = delivery_id(ids.new("evt"), ids.new(prefix) if prefix else "default")
    assert is_delivery_id(made)
    assert is_delivery_id(made + noise) == is_delivery_id(noise + made) == (not noise)
