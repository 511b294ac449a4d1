"""Deliveries as items of the deliveries table: keys, attributes and index entries.

    item                                     pk                                    sk
    delivery, with its last attempt          DELIVERY#{delivery_id}                META
    earlier attempt of a delivery            DELIVERY#{delivery_id}                ATTEMPT#{number in 6 digits}
    health of a destination (`health`)       HEALTH#{owner}#{destination}          HEALTH

    index    item                            pk                                    sk
    gsi1     delivery                        ENDPOINT#{owner}#{endpoint_id}        {created_at}#{delivery_id}
    gsi2     open delivery                   DUE#{shard}                           {time to queue it}
    gsi2     open delivery, held             HELD#{owner}#{destination}            {queued_at}#{delivery_id}
    gsi2     delivery without success        UNSENT#{owner}#{endpoint_id}#{status} {created_at}#{delivery_id}
    gsi2     circuit, open or draining       CIRCUIT                               {next_check_at}

- An open delivery is always in gsi2, so a lost message of the queue only delays it. A held delivery waits for the
  circuit of its destination.
- `expires_at` (epoch seconds) is the TTL attribute. DynamoDB deletes an expired item up to some days later, so
  reads ignore expired items: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/TTL.html
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from core import events
from core.aws.batch import MAX_QUEUE_DELAY_SECONDS
from core.aws.dynamodb import Item
from core.webhooks.deliveries.model import UNSENT, Attempt, Delivery

QUEUE_RETRY_SECONDS = 900  # after this time in the queue without an attempt, a delivery is queued again
DUE_SHARDS = 16  # a partition of an index takes 1,000 writes a second

# The SDK takes time for each attribute, in both directions: what never changes is one attribute, so is an attempt.
FACTS = (
    "delivery_id",
    "event_id",
    "event",
    "endpoint_id",
    "owner",
    "format",
    "created_at",
    "job_id",
    "job_expires_at",
    "sequence",
    "url",
    "single",
)
_TEXTS = ("body", "status", "reason", "follows", "followed_by", "replay")
_NUMBERS = ("expires_at", "queued_at", "attempts", "tries", "queue_retries", "due", "lease_until")

ATTRIBUTES = ("facts", *_TEXTS, *_NUMBERS, "last_attempt")
"""The attributes that `read_delivery` needs; the others of the item are keys."""


# ── items ────────────────────────────────────────────────────────────────────────────────────────────────


def delivery_key(delivery_id: str) -> dict[str, str]:
    return {"pk": f"DELIVERY#{delivery_id}", "sk": "META"}


def id_of(entry: Mapping[str, Any]) -> str:
    """The delivery's id in an item or index entry."""
    return str(entry["pk"]).removeprefix("DELIVERY#")


def delivery_item(delivery: Delivery, *, now: float) -> Item:
    """The whole item of a delivery, index entries included. Only texts and numbers; None is left out."""
    facts = {name: value for name in FACTS if (value := getattr(delivery, name)) is not None}
    state = {name: value for name in (*_TEXTS, *_NUMBERS) if (value := getattr(delivery, name)) is not None}
    last = {"last_attempt": attempt_json(delivery.last_attempt)} if delivery.last_attempt else {}
    by_endpoint = {
        "gsi1pk": endpoint_partition(delivery.owner, delivery.endpoint_id),
        "gsi1sk": f"{delivery.created_at}#{delivery.delivery_id}",
    }
    item = delivery_key(delivery.delivery_id) | {"entity": "delivery", "facts": json.dumps(facts)}
    return item | state | last | by_endpoint | status_entry(delivery, now=now)


def read_delivery(item: Mapping[str, Any]) -> Delivery:
    """The delivery in an item of the table."""
    values = json.loads(item["facts"]) | {name: item.get(name) for name in _TEXTS}
    values |= {name: int(item[name]) for name in _NUMBERS}
    last = item.get("last_attempt")
    return Delivery(**values, last_attempt=read_attempt(last) if last else None, held_by=_held_by(item))


def _held_by(item: Mapping[str, Any]) -> str | None:
    kind, *rest = item.get("gsi2pk", "").split("#", 2)
    return str(rest[-1]) if kind == "HELD" else None


def attempt_item(delivery: Delivery, attempt: Attempt) -> Item:
    """The item of an attempt that is not the last one any more."""
    key = delivery_key(delivery.delivery_id) | {"sk": f"ATTEMPT#{attempt.number:06d}"}
    return key | {"entity": "attempt", "expires_at": delivery.expires_at, "attempt": attempt_json(attempt)}


def attempt_json(attempt: Attempt) -> str:
    """Without `asdict`, which makes deep copies that nothing here needs."""
    return json.dumps({f.name: getattr(attempt, f.name) for f in fields(Attempt)}, ensure_ascii=False)


def read_attempt(text: str) -> Attempt:
    return Attempt(**json.loads(text))


# ── index entries ────────────────────────────────────────────────────────────────────────────────────────


def endpoint_partition(owner: str, endpoint_id: str) -> str:
    """In gsi1."""
    return f"ENDPOINT#{owner}#{endpoint_id}"


def due_partition(shard: int) -> str:
    return f"DUE#{shard:02d}"


def held_partition(owner: str, destination: str) -> str:
    return f"HELD#{owner}#{destination}"


def unsent_partition(owner: str, endpoint_id: str, status: str) -> str:
    return f"UNSENT#{owner}#{endpoint_id}#{status}"


def status_entry(delivery: Delivery, *, now: float) -> Item:
    """The entry in gsi2 that follows from the status; empty for `delivered`.

    An attempt that is due within the longest delay of a queue is in the queue, so its time in the index is later.
    """
    if delivery.is_open:
        is_queued = delivery.due - now <= MAX_QUEUE_DELAY_SECONDS
        return due_entry(delivery.delivery_id, delivery.due + (QUEUE_RETRY_SECONDS if is_queued else 0))
    if delivery.status in UNSENT:
        pk = unsent_partition(delivery.owner, delivery.endpoint_id, delivery.status)
        return {"gsi2pk": pk, "gsi2sk": f"{delivery.created_at}#{delivery.delivery_id}"}
    return {}


def due_entry(delivery_id: str, at: float) -> Item:
    """The retry scheduler queues the delivery at `at` (epoch seconds)."""
    shard = int(hashlib.sha256(delivery_id.encode()).hexdigest(), 16) % DUE_SHARDS
    return {"gsi2pk": due_partition(shard), "gsi2sk": events.timestamp(at)}


def held_entry(delivery_id: str, *, owner: str, destination: str, queued_at: int) -> Item:
    """The delivery waits until the circuit of its destination closes."""
    return {
        "gsi2pk": held_partition(owner, destination),
        "gsi2sk": f"{events.timestamp(queued_at)}#{delivery_id}",
    }
