"""One HTTP attempt: sign, send, and put into words what came of it."""

from __future__ import annotations

import base64
import codecs
import time
from typing import Any

from core import events
from core.dependencies import dependencies
from core.errors import DeliveryError, Refused
from core.webhooks.deliveries import schedule
from core.webhooks.deliveries.formats import content_type
from core.webhooks.deliveries.store import Attempt, Delivery
from core.webhooks.endpoints.headers import MASK
from core.webhooks.endpoints.store import Endpoint
from core.webhooks.transport import client, signing
from webhooks.sender.destinations import Destination

USER_AGENT = "Recado-Webhooks/1"
GONE = 410


def make_attempt(delivery: Delivery, endpoint: Endpoint, destination: Destination, *, trigger: str) -> Attempt:
    """Send the stored bytes, signed afresh: the id stays the same over all attempts, the timestamp does not."""
    started, at = time.monotonic(), time.time()
    url, body = delivery.url or endpoint.url or "", delivery.body.encode()
    sent: dict[str, str] = {}
    try:
        sent = _headers(delivery, destination, body, timestamp=int(at))
        outcome = _post(url, delivery, endpoint, destination.headers | sent, body)
    except DeliveryError as error:
        outcome = {"error": error.error_class, "message": str(error)}
    except Refused as error:
        outcome = {"error": "blocked", "message": str(error)}
    except ValueError:  # a stored secret or id that cannot sign: no retry of the message would mend it
        outcome = {"error": "signing", "message": "The endpoint's secret is damaged. Rotate it."}
    return Attempt(
        number=delivery.attempts + 1,
        at=events.timestamp(at),
        trigger=trigger,
        url=url,
        duration_ms=round(1000 * (time.monotonic() - started)),
        request_headers=dict.fromkeys(destination.headers, MASK) | sent,
        **outcome,
    )


def _headers(delivery: Delivery, destination: Destination, body: bytes, *, timestamp: int) -> dict[str, str]:
    signatures = signing.sign(destination.secrets, event_id=delivery.event_id, timestamp=timestamp, body=body)
    return {"content-type": content_type(delivery.format), "user-agent": USER_AGENT, **signatures}


def _post(
    url: str, delivery: Delivery, endpoint: Endpoint, headers: dict[str, str], body: bytes
) -> dict[str, Any]:
    answer = client.post(
        url,
        body=body,
        headers=headers,
        policy=dependencies.policy,
        deadline_seconds=dependencies.settings.webhook_timeout_seconds,
        connections=dependencies.connection_pool,
        reuse_key=(delivery.owner, delivery.destination, endpoint.version),
    )
    succeeded = 200 <= answer.status < 300
    return {
        "status": answer.status,
        "error": None if succeeded else f"http_{answer.status // 100}xx",
        "response_headers": _shown_headers(answer),
        "truncated": answer.truncated,
    } | shown(answer.body)


def _shown_headers(answer: client.Response) -> dict[str, str]:
    """By lower-case name; what came several times is joined, as RFC 9110 has it."""
    headers: dict[str, str] = {}
    for name, value in answer.head:
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return headers | answer.headers


def shown(body: bytes) -> dict[str, Any]:
    """The start of an answer as text, though it was cut inside a character; what is not UTF-8 as base64."""
    try:
        return {"body": codecs.getincrementaldecoder("utf-8")().decode(body)}
    except UnicodeDecodeError:
        return {"body": base64.b64encode(body).decode(), "body_is_base64": True}


def next_wait(claimed: Delivery, attempt: Attempt) -> int | None:
    """Seconds until the next attempt, or None after the last, or where the receiver wants no more."""
    if attempt.status == GONE:
        return None
    return schedule.next_wait(
        dependencies.settings.webhook_schedule_seconds,
        claimed.tries + 1,
        status=attempt.status,
        retry_after=attempt.response_headers.get("retry-after"),
        now=time.time(),
    )
