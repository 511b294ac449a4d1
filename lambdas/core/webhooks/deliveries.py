"""Deliveries: one event to one endpoint, with HTTP attempts of its own.

    pending ──claim──▶ sending ──record──▶ delivered
       ▲                  ├────record────▶ failed       attempts are used up
       └──────record──────┘                             the next attempt is due later

Each attempt is claimed by number, so a message that comes twice is sent once.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from core import events
from core.events import Event

LEASE_SECONDS = 120  # longer than the sender may run, so that only a dead sender loses its claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The row `DELIVERY#{event_id}#{endpoint_id}`. `due` and `lease_until` are epoch seconds."""

    event_id: str
    endpoint_id: str
    event: str
    job_id: str
    owner: str
    url: str
    body: str
    created_at: str
    expires_at: int
    job_expires_at: int
    status: str = "pending"
    attempts: int = 0
    due: int = 0
    lease_until: int = 0
    last_attempt: Attempt | None = None

    @property
    def delivery_id(self) -> str:
        return f"{self.event_id}#{self.endpoint_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What one HTTP attempt came to. `error` is a class such as `timeout`; `body` is the start of the answer."""

    at: str
    duration_ms: int
    status: int | None = None
    error: str | None = None
    message: str | None = None
    body: str | None = None

    @property
    def succeeded(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


class DeliveryStore:
    """Deliveries in one DynamoDB table. `client` is a resource's client."""

    def __init__(self, client: Any, table: str, *, clock: Callable[[], float] = time.time) -> None:
        self._client, self._table, self._clock = client, table, clock

    def create(
        self, event: Event, *, endpoint_id: str, url: str, job_expires_at: int, retention_seconds: int
    ) -> Delivery:
        """The delivery of this event to this endpoint: a new one, or the one that is there already."""
        now = self._clock()
        delivery = Delivery(
            event_id=event.event_id,
            endpoint_id=endpoint_id,
            event=event.name,
            job_id=event.job_id,
            owner=event.owner,
            url=url,
            body=event.body,
            created_at=events.timestamp(now),
            expires_at=int(now) + retention_seconds,
            job_expires_at=job_expires_at,
        )
        try:
            self._client.put_item(
                TableName=self._table, Item=_item(delivery), ConditionExpression="attribute_not_exists(pk)"
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return self.get(delivery.delivery_id) or delivery
        return delivery

    def get(self, delivery_id: str) -> Delivery | None:
        item = self._client.get_item(TableName=self._table, Key=_key(delivery_id), ConsistentRead=True).get("Item")
        return _delivery(item) if item else None

    def claim(self, delivery: Delivery) -> Delivery | None:
        """Take the next attempt for this worker, or None if another has it."""
        now = int(self._clock())
        claimed = replace(delivery, status="sending", lease_until=now + LEASE_SECONDS)
        return claimed if self._replace(claimed, was=delivery) else None

    def record(self, delivery: Delivery, attempt: Attempt, *, wait: int | None) -> Delivery:
        """Write down an attempt. `wait`: seconds until the next one, None if there is none."""
        status = "delivered" if attempt.succeeded else "failed" if wait is None else "pending"
        recorded = replace(
            delivery,
            status=status,
            attempts=delivery.attempts + 1,
            due=int(self._clock()) + (wait or 0),
            lease_until=0,
            last_attempt=attempt,
        )
        self._replace(recorded, was=delivery)
        return recorded

    def fail(self, delivery: Delivery) -> bool:
        """Give up a delivery that is open and in nobody's hands; False leaves it as it is."""
        if delivery.status not in ("pending", "sending") or delivery.lease_until > self._clock():
            return False
        return self._replace(replace(delivery, status="failed", lease_until=0), was=delivery)

    def _replace(self, delivery: Delivery, *, was: Delivery) -> bool:
        """Status, attempt and lease together name the one state that was seen."""
        try:
            self._client.put_item(
                TableName=self._table,
                Item=_item(delivery),
                ConditionExpression="#status = :status AND attempts = :attempts AND lease_until = :lease",
                ExpressionAttributeNames={"#status": "status"},
                ExpressionAttributeValues={
                    ":status": was.status,
                    ":attempts": was.attempts,
                    ":lease": was.lease_until,
                },
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return False
        return True


def for_job(delivery: Delivery, attempt: Attempt) -> Mapping[str, Any]:
    """What the job shows of its webhook."""
    return {
        "url": delivery.url,
        "event": delivery.event,
        "event_id": delivery.event_id,
        "status": delivery.status,
        "attempts": delivery.attempts,
        "next_attempt_at": events.timestamp(delivery.due) if delivery.status == "pending" else None,
        "last_attempt": asdict(attempt),
    }


def fairness_group(delivery: Delivery) -> str:
    """One group per URL of an owner, so that a slow receiver keeps only its own deliveries waiting.

    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-fair-queues.html
    """
    return hashlib.sha256(f"{delivery.owner} {delivery.url}".encode()).hexdigest()


def _key(delivery_id: str) -> dict[str, str]:
    return {"pk": f"DELIVERY#{delivery_id}", "sk": "META"}


def _item(delivery: Delivery) -> dict[str, Any]:
    values = {name: getattr(delivery, name) for name in Delivery.__slots__}
    if delivery.last_attempt:
        values["last_attempt"] = asdict(delivery.last_attempt)
    return _key(delivery.delivery_id) | {"entity": "delivery"} | values


_NUMBERS = ("expires_at", "job_expires_at", "attempts", "due", "lease_until")


def _delivery(item: Mapping[str, Any]) -> Delivery:
    values = {f.name: item[f.name] for f in fields(Delivery)}
    values |= {name: int(values[name]) for name in _NUMBERS}
    return Delivery(**values | {"last_attempt": _attempt(item["last_attempt"])})


def _attempt(item: Mapping[str, Any] | None) -> Attempt | None:
    if item is None:
        return None
    numbers = {name: int(item[name]) for name in ("duration_ms", "status") if item[name] is not None}
    return Attempt(**{**item, **numbers})
