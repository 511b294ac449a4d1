"""Makes one HTTP attempt: signs, sends, and describes the result."""

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
from core.webhooks.deliveries.model import Attempt, Delivery
from core.webhooks.endpoints.headers import MASK
from core.webhooks.endpoints.model import Endpoint
from core.webhooks.transport import client, signing
from webhooks.sender.destinations import Destination

USER_AGENT = "Recado-Webhooks/1"
ATTEMPT_HEADER = "recado-attempt"
GONE = 410


def make_attempt(delivery: Delivery, endpoint: Endpoint, destination: Destination, *, trigger: str) -> Attempt:
    """Send the stored body. Each attempt has the same id, and a new timestamp and signature.

    Raises LookupsBusy if the name could not be looked up yet. Then no attempt was made.
    """
    started, at = time.monotonic(), time.time()
    url, body = delivery.url or endpoint.url or "", delivery.body.encode()
    sent: dict[str, str] = {}
    try:
        sent = _headers(delivery, destination, body, timestamp=int(at))
        result = _post(url, delivery, endpoint, destination.headers | sent, body)
    except DeliveryError as error:
        result = {"error": error.error_class, "message": str(error)}
    except Refused as error:
        result = {"error": "blocked", "message": str(error)}
    except ValueError:  # the stored secret or id cannot sign; a retry of the message would not help
        result = {"error": "signing", "message": "The endpoint's secret is damaged. Rotate it."}
    return Attempt(
        number=delivery.attempts + 1,
        at=events.timestamp(at),
        trigger=trigger,
        url=url,
        duration_ms=round(1000 * (time.monotonic() - started)),
        request_headers=dict.fromkeys(destination.headers, MASK) | sent,
        **result,
    )


def _headers(delivery: Delivery, destination: Destination, body: bytes, *, timestamp: int) -> dict[str, str]:
    signatures = signing.sign(destination.secrets, event_id=delivery.event_id, timestamp=timestamp, body=body)
    return {
        "content-type": content_type(delivery.format),
        "user-agent": USER_AGENT,
        events.DELIVERY_HEADER.lower(): delivery.delivery_id,
        ATTEMPT_HEADER: str(delivery.attempts + 1),
        **signatures,
    }


def _post(
    url: str, delivery: Delivery, endpoint: Endpoint, headers: dict[str, str], body: bytes
) -> dict[str, Any]:
    answer = client.post(
        url,
        body=body,
        headers=headers,
        policy=dependencies.policy,
        deadline_seconds=dependencies.settings.webhook_timeout_seconds,
        owner=delivery.owner,
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
    """By lower-case name. Repeated headers are joined (RFC 9110, section 5.3)."""
    headers: dict[str, str] = {}
    for name, value in answer.head:
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return headers | answer.headers


def shown(body: bytes) -> dict[str, Any]:
    """The start of a response body: text, even if it is cut inside a character; base64 if it is not UTF-8."""
    try:
        return {"body": codecs.getincrementaldecoder("utf-8")().decode(body)}
    except UnicodeDecodeError:
        return {"body": base64.b64encode(body).decode(), "body_is_base64": True}


def next_wait(claimed: Delivery, attempt: Attempt) -> int | None:
    """Seconds until the next attempt; None after the last one, and after a 410."""
    if attempt.status == GONE:
        return None
    return schedule.next_wait(
        dependencies.settings.webhook_schedule_seconds,
        claimed.tries + 1,
        status=attempt.status,
        retry_after=attempt.response_headers.get("retry-after"),
        now=time.time(),
    )
