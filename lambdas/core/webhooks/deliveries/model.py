"""Deliveries: one event to one endpoint, with its own HTTP attempts.

    pending ──claim──▶ sending ──record──▶ delivered
     ▲  ▲ │              ├────record────▶ failed        no attempt is left
     │  └─┼────record────┘                              the next attempt is due later
     │    ├─────end─────▶ discarded                     the endpoint is disabled
     │    └─────end─────▶ canceled                      the endpoint or the job was deleted
     └─────────────────requeue────────── from any of the last four, when the owner replays the delivery

A manual attempt can be made in each status.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from core import events, ids
from core.errors import Refused
from core.webhooks.endpoints.model import DEFAULT
from core.webhooks.transport.guard import host_and_port

HOST_PREFIX = "host#"
OPEN = ("pending", "sending")
UNSENT = ("failed", "discarded", "canceled")
STATUSES = (*OPEN, "delivered", *UNSENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One HTTP attempt and its result. `error` is a class such as `timeout`; it is None for a 2xx.

    `request_headers` contain signatures but no secret. `body` is the start of the response, as base64 if
    `body_is_base64`.
    """

    number: int
    at: str
    trigger: str
    url: str
    duration_ms: int = 0
    status: int | None = None
    error: str | None = None
    message: str | None = None
    request_headers: Mapping[str, str] = field(default_factory=dict)
    response_headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    body_is_base64: bool = False
    truncated: bool = False

    @property
    def succeeded(self) -> bool:
        return self.error is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A delivery. `due`, `lease_until`, `queued_at` and `expires_at` are epoch seconds.

    `attempts` counts all attempts, `tries` those of the schedule. `url` is set for a job's own webhook; the URL of
    an endpoint is read before each attempt. A `single` delivery has one attempt. `follows` and `followed_by` are
    the ids of the deliveries before and after it at an ordered endpoint. `queue_retries` counts how often the
    retry scheduler has queued it again since the last attempt. `held_by` is the destination whose circuit it waits
    for, if its index entry was read. `reason` is why it ended without an attempt: `disabled`, `deleted`,
    `job_deleted` or `circuit_open`. The `body` is empty after the job was deleted.
    """

    delivery_id: str
    event_id: str
    event: str
    endpoint_id: str
    owner: str
    format: str
    body: str
    created_at: str
    expires_at: int
    queued_at: int
    job_id: str | None = None
    job_expires_at: int | None = None
    sequence: int | None = None
    url: str | None = None
    single: bool = False
    follows: str | None = None
    followed_by: str | None = None
    replay: str | None = None
    status: str = "pending"
    reason: str | None = None
    attempts: int = 0
    tries: int = 0
    queue_retries: int = 0
    due: int = 0
    lease_until: int = 0
    last_attempt: Attempt | None = None
    held_by: str | None = None

    @property
    def is_open(self) -> bool:
        return self.status in OPEN

    @property
    def is_erased(self) -> bool:
        """Whether its job was deleted. Then nothing can be sent."""
        return self.body == ""

    @property
    def destination(self) -> str:
        return destination_of(self.endpoint_id, self.url)


def draft(*, event_id: str, endpoint_id: str, now: float, retention_seconds: int, **facts: Any) -> Delivery:
    """A new delivery of this event to this endpoint, not yet written. Its first attempt is due at `now`."""
    return Delivery(
        delivery_id=delivery_id(event_id, endpoint_id),
        event_id=event_id,
        endpoint_id=endpoint_id,
        created_at=events.timestamp(now),
        expires_at=int(now) + retention_seconds,
        queued_at=int(now),
        due=int(now),
        **facts,
    )


def apply_attempt(delivery: Delivery, attempt: Attempt, *, wait: int | None, now: int) -> Delivery:
    """The delivery after this attempt. `wait`: seconds until the next one, None if there is none.

    A manual attempt does not count for the schedule. If it fails, the status stays as it was.
    """
    manual = attempt.trigger == "manual"
    counted = replace(
        delivery,
        attempts=attempt.number,
        tries=delivery.tries + (not manual),
        queue_retries=0,
        lease_until=0,
        last_attempt=attempt,
    )
    if attempt.succeeded:
        return replace(counted, status="delivered", reason=None)
    if delivery.single and delivery.is_open:
        return replace(counted, status="failed")
    if manual:  # `sending` can be left from a sender that was killed
        return replace(counted, status="pending") if delivery.is_open else counted
    if wait is None:
        return replace(counted, status="failed")
    return replace(counted, status="pending", due=now + wait)


def delivery_id(event_id: str, endpoint_id: str) -> str:
    """The id of the one delivery of an event to an endpoint."""
    return f"dlv_{ids.ulid_of(event_id)}_{ids.ulid_of(endpoint_id)}"


def is_delivery_id(text: str) -> bool:
    """Whether `text` has the form of a delivery's id."""
    event, _, endpoint = text.removeprefix("dlv_").partition("_")
    return text == f"dlv_{event}_{endpoint}" and (
        ids.is_id("evt", f"evt_{event}") and (endpoint == DEFAULT or ids.is_id("wh", f"wh_{endpoint}"))
    )


def destination_of(endpoint_id: str, url: str | None) -> str:
    """The unit of circuit breaker and rate limit: an endpoint, or one URL that jobs name."""
    if endpoint_id != DEFAULT:
        return endpoint_id
    return f"{DEFAULT}-{hashlib.sha256(str(url).encode()).hexdigest()[:16]}"


def host_destination(url: str | None) -> str:
    """The destination that all URLs of one host and port share. It has a circuit breaker, too.

    Malformed URLs share one; no request is made to them.
    """
    try:
        return HOST_PREFIX + host_and_port(url or "")
    except Refused:
        return HOST_PREFIX
