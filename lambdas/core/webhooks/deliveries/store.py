"""Writes to the items of deliveries, each with a condition, and reads by id.

The item is written before its message is queued, so no delivery depends on the queue. Each attempt is claimed by
its number: of two messages for one attempt, one sends it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from core.aws.dynamodb import Item, get_all, is_expired
from core.errors import NotFound
from core.webhooks.deliveries.model import STATUSES, Attempt, Delivery, apply_attempt
from core.webhooks.deliveries.rows import (
    QUEUE_RETRY_SECONDS,
    attempt_item,
    attempt_json,
    delivery_item,
    delivery_key,
    due_entry,
    held_entry,
    id_of,
    read_attempt,
    read_delivery,
    status_entry,
)

LEASE_SECONDS = 120  # longer than the sender may run: only a sender that was killed loses its claim
MAX_QUEUE_RETRY_DOUBLINGS = 8  # so that a queue that is hours behind does not fill up with copies
NO_SUCH_DELIVERY = "There is no such delivery. Check the id. Deliveries are kept for a limited time."

JOB_DELETED = "job_deleted"

_UNCLAIMED = "attempts = :attempts AND lease_until <= :now AND #status IN (:pending, :sending)"


class DeliveryStore:
    """Deliveries in one DynamoDB table. `client` is a resource's client."""

    def __init__(self, client: Any, table: str, *, clock: Callable[[], float] = lambda: time.time()) -> None:
        self._client, self._table, self._clock = client, table, clock

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────

    def get(self, delivery_id: str, *, owner: str | None = None) -> Delivery | None:
        """The delivery; None if it does not exist, has expired, or belongs to another owner than `owner`."""
        key = delivery_key(delivery_id)
        item = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True).get("Item")
        return self._visible(item, owner)

    def read_all(self, delivery_ids: Sequence[str]) -> list[Delivery]:
        """Those that exist, expired ones included. Each id once."""
        keys = [delivery_key(identifier) for identifier in delivery_ids]
        return [read_delivery(item) for item in get_all(self._client, self._table, keys, ConsistentRead=True)]

    def with_attempts(self, delivery_id: str, *, owner: str) -> tuple[Delivery, list[Attempt]]:
        """A delivery and all its attempts, oldest first. Raises NotFound."""
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            KeyConditionExpression="pk = :pk",
            ExpressionAttributeValues={":pk": delivery_key(delivery_id)["pk"]},
            ConsistentRead=True,
        )
        items = {item["sk"]: item for page in pages for item in page["Items"]}
        delivery = self._visible(items.pop("META", None), owner)
        if delivery is None:
            raise NotFound(NO_SUCH_DELIVERY)
        last = delivery.last_attempt
        earlier = [read_attempt(items[sk]["attempt"]) for sk in sorted(items)]
        return delivery, [a for a in earlier if last is None or a.number < last.number] + ([last] if last else [])

    def _visible(self, item: Mapping[str, Any] | None, owner: str | None) -> Delivery | None:
        if item is None or is_expired(item, self._clock()):
            return None
        delivery = read_delivery(item)
        return delivery if owner in (None, delivery.owner) else None

    # ── from one status to another ───────────────────────────────────────────────────────────────────────

    def create(self, delivery: Delivery) -> Delivery:
        """Write a new delivery, or return the one that exists."""
        now = self._clock()
        try:
            self._client.put_item(
                TableName=self._table,
                Item=delivery_item(delivery, now=now),
                ConditionExpression="attribute_not_exists(pk) OR expires_at <= :now",
                ExpressionAttributeValues={":now": int(now)},
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return self.get(delivery.delivery_id) or delivery
        return delivery

    def claim(self, delivery_id: str, *, attempts: int, manual: bool = False) -> Delivery | None:
        """Claim attempt `attempts` + 1 for LEASE_SECONDS; None if that attempt must not be made now.

        A manual attempt can be claimed in any status, unless the delivery is erased, and does not change it.
        """
        now = int(self._clock())
        values: Item = {":attempts": attempts, ":now": now, ":lease": now + LEASE_SECONDS}
        condition = "attempts = :attempts AND lease_until <= :now AND expires_at > :now"
        if manual:
            condition, values = f"{condition} AND #body <> :erased", values | {":erased": ""}
            return self._update(delivery_id, "SET lease_until = :lease", condition, values)
        return self._update(
            delivery_id,
            "SET lease_until = :lease, #status = :sending",
            f"{condition} AND #status IN (:pending, :sending)",
            values | {":sending": "sending", ":pending": "pending"},
        )

    def release(self, claimed: Delivery) -> Delivery | None:
        """Give up a claim without an attempt; None if it was lost. The delivery's index entry stays as it is."""
        status = {"status": "pending"} if claimed.status == "sending" else {}
        return self._set(
            claimed.delivery_id,
            {"lease_until": 0} | status,
            condition="lease_until = :lease AND attempts = :attempts",
            values={":lease": claimed.lease_until, ":attempts": claimed.attempts},
        )

    def record(
        self, claimed: Delivery, attempt: Attempt, *, wait: int | None, ordered: bool = True
    ) -> Delivery | None:
        """Write an attempt and the state that follows from it; None if the claim was lost.

        `wait`: seconds until the next attempt, None if there is none. `ordered`: another delivery may have been
        linked behind this one since the claim, so the item is read back. The attempt before this one, which the
        item contained until now, is written as an item of its own first.
        """
        if claimed.last_attempt:
            self._client.put_item(TableName=self._table, Item=attempt_item(claimed, claimed.last_attempt))
        changed = apply_attempt(claimed, attempt, wait=wait, now=math.ceil(self._clock()))
        keeps_entry = attempt.trigger == "manual" and changed.is_open
        entry = {} if keeps_entry else status_entry(changed, now=self._clock())
        names = ("status", "reason", "attempts", "tries", "queue_retries", "due")
        state = {name: getattr(changed, name) for name in names}
        written = self._set(
            claimed.delivery_id,
            state | {"lease_until": 0, "last_attempt": attempt_json(attempt)} | entry,
            condition="lease_until = :lease AND attempts = :attempts",
            values={":lease": claimed.lease_until, ":attempts": claimed.attempts},
            remove=() if entry or changed.is_open else ("gsi2pk", "gsi2sk"),
            unless_returned=None if ordered else changed,
        )
        return written or self._recorded(claimed.delivery_id, attempt)

    def _recorded(self, delivery_id: str, attempt: Attempt) -> Delivery | None:
        """The delivery if this attempt is its last: the SDK writes again after a lost response."""
        found = self.get(delivery_id)
        return found if found and found.last_attempt == attempt else None

    def end(self, delivery_id: str, status: str, *, attempts: int, reason: str) -> Delivery | None:
        """End an open, unclaimed delivery as failed, discarded or canceled; None if it is in another state."""
        delivery = self.get(delivery_id)
        if delivery is None:
            return None
        entry = status_entry(replace(delivery, status=status), now=self._clock())
        return self._set(
            delivery_id,
            {"status": status, "reason": reason, "lease_until": 0} | entry,
            condition=_UNCLAIMED,
            values=self._unclaimed(attempts),
        )

    def erase(self, delivery: Delivery) -> bool:
        """Delete the payload of a delivery whose job was deleted, and cancel it if it is open.

        Returns False, and does nothing, while an attempt is in progress or if the delivery has changed meanwhile.
        """
        if delivery.is_erased:
            return True
        sets: Item = {"body": "", "lease_until": 0}
        if delivery.is_open:
            sets |= {"status": "canceled", "reason": JOB_DELETED}
            sets |= status_entry(replace(delivery, status="canceled"), now=self._clock())
        erased = self._set(
            delivery.delivery_id,
            sets,
            condition="lease_until <= :now AND attempts = :attempts AND #status = :seen",
            values={":now": int(self._clock()), ":attempts": delivery.attempts, ":seen": delivery.status},
        )
        return erased is not None

    def requeue(
        self,
        delivery: Delivery,
        *,
        replay: str,
        follows: str | None = None,
        statuses: Sequence[str] = STATUSES,
    ) -> Delivery | None:
        """Set a delivery of these statuses to pending, with its whole schedule and its whole retention again.

        None if this replay has already done so, if the delivery is claimed or erased, or if it has another status.
        A sender whose lease is over loses its claim, because its record would undo this.
        """
        now = int(self._clock())
        sets = {
            "lease_until": 0,
            "status": "pending",
            "reason": None,
            "tries": 0,
            "queue_retries": 0,
            "due": now,
            "queued_at": now,
            "expires_at": now + delivery.expires_at - delivery.queued_at,
            "replay": replay,
            "follows": follows,
        }
        allowed = {f":status_{number}": status for number, status in enumerate(statuses)}
        return self._set(
            delivery.delivery_id,
            sets | status_entry(replace(delivery, status="pending", due=now), now=self._clock()),
            condition="lease_until <= :now AND (attribute_not_exists(replay) OR replay <> :replay_id)"
            f" AND #status IN ({', '.join(allowed)}) AND #body <> :erased",
            values={":now": now, ":replay_id": replay, ":erased": ""} | allowed,
        )

    # ── when a sender gets it ────────────────────────────────────────────────────────────────────────────

    def postpone(self, delivery_id: str, *, attempts: int, until: float) -> Delivery | None:
        """Have it queued at `until` (epoch seconds); None if it is claimed or has ended."""
        entry = due_entry(delivery_id, until)
        return self._set(delivery_id, entry, condition=_UNCLAIMED, values=self._unclaimed(attempts))

    def hold(
        self, delivery_id: str, *, owner: str, destination: str, attempts: int, queued_at: int
    ) -> Delivery | None:
        """Have it wait for the circuit of its destination; None if it is claimed or has ended.

        `DeliveryIndex.held` finds it, and `mark_queued` ends the wait.
        """
        entry = held_entry(delivery_id, owner=owner, destination=destination, queued_at=queued_at)
        return self._set(
            delivery_id, entry | {"status": "pending"}, condition=_UNCLAIMED, values=self._unclaimed(attempts)
        )

    def mark_queued(self, entry: Mapping[str, Any]) -> Delivery | None:
        """Note, before its message is sent, that the delivery of an index entry is in the queue.

        If no sender makes an attempt, the delivery is due again after QUEUE_RETRY_SECONDS, each time twice as
        long. None if the delivery has ended, or has another entry than this one by now.
        """
        delivery_id = id_of(entry)
        delivery = self.get(delivery_id)
        if delivery is None or not delivery.is_open:
            return None
        retries = min(delivery.queue_retries + 1, MAX_QUEUE_RETRY_DOUBLINGS)
        again = due_entry(delivery_id, self._clock() + QUEUE_RETRY_SECONDS * 2 ** (retries - 1))
        return self._set(
            delivery_id,
            again | {"queue_retries": retries},
            condition="gsi2pk = :seen_pk AND gsi2sk = :seen_sk",
            values={":seen_pk": entry["gsi2pk"], ":seen_sk": entry["gsi2sk"]},
        )

    def link(self, predecessor: str, follower: str) -> bool:
        """Have `follower` queued when `predecessor` ends; False if that has ended already, or does not exist."""
        return bool(
            self._set(
                predecessor,
                {"followed_by": follower},
                condition="#status IN (:pending, :sending)",
                values={":pending": "pending", ":sending": "sending"},
            )
        )

    # ── updates ──────────────────────────────────────────────────────────────────────────────────────────

    def _unclaimed(self, attempts: int) -> Item:
        """The values of the condition _UNCLAIMED."""
        return {":attempts": attempts, ":now": int(self._clock()), ":pending": "pending", ":sending": "sending"}

    def _set(
        self,
        delivery_id: str,
        sets: Item,
        *,
        condition: str,
        values: Item,
        remove: Sequence[str] = (),
        unless_returned: Delivery | None = None,
    ) -> Delivery | None:
        expression = "SET " + ", ".join(f"#{name} = :set_{name}" for name in sets)
        if remove:
            expression += " REMOVE " + ", ".join(remove)
        return self._update(
            delivery_id,
            expression,
            condition,
            values | {f":set_{name}": value for name, value in sets.items()},
            names=sets,
            unless_returned=unless_returned,
        )

    def _update(
        self,
        delivery_id: str,
        expression: str,
        condition: str,
        values: Item,
        *,
        names: Mapping[str, Any] = {},
        unless_returned: Delivery | None = None,
    ) -> Delivery | None:
        """The delivery after the update; None if the condition is false or there is no item.

        A caller that knows the delivery after the update passes it: to read the response is half of a call's time.
        """
        text = f"{expression} {condition}"
        used = {f"#{name}": name for name in {*names, "status", "body"} if f"#{name}" in text}
        try:
            answer = self._client.update_item(
                TableName=self._table,
                Key=delivery_key(delivery_id),
                UpdateExpression=expression,
                ConditionExpression=f"attribute_exists(pk) AND {condition}",
                ExpressionAttributeValues=values,
                ReturnValues="NONE" if unless_returned else "ALL_NEW",
                **({"ExpressionAttributeNames": used} if used else {}),
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return None
        return unless_returned or read_delivery(answer["Attributes"])
