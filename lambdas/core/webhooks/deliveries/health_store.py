"""Counters and circuit breakers of destinations, in the deliveries table.

A sender reads the health of its destinations at the start of a batch, and adds the outcomes of the batch with one
write per destination at the end. So the numbers lag by seconds, and lack the outcomes of a sender that was killed.
No delivery depends on them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from core import events
from core.aws.dynamodb import Item, get_all
from core.webhooks.deliveries.health import (
    CHECK_ATTRIBUTES,
    CIRCUIT_PARTITION,
    AttemptOutcome,
    Health,
    add_outcomes,
    check_entry,
    destination_in,
    health_key,
    read_health,
)
from core.webhooks.deliveries.schedule import JITTER
from core.webhooks.deliveries.update import Update

MIN_OPEN_SECONDS, MAX_OPEN_SECONDS = 60, 3600
PROBE_SECONDS = 180  # after this time without an outcome of a probe, another one is sent
DRAINING_SECONDS = 300  # so long a sender may still hold deliveries, because of the health that it has read


class HealthStore:
    """Health items in the deliveries table. `client` is a resource's client."""

    def __init__(
        self,
        client: Any,
        table: str,
        *,
        failures_to_open: int,
        clock: Callable[[], float] = lambda: time.time(),
        spread: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._client, self._table, self._clock, self._spread = client, table, clock, spread
        self._failures_to_open = failures_to_open

    def get(self, owner: str, destination: str) -> Health:
        key = health_key(owner, destination)
        item = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True).get("Item")
        return read_health(owner, destination, item)

    def many(self, owner: str, destinations: Sequence[str]) -> dict[str, Health]:
        """By destination, for any number of destinations."""
        keys = [health_key(owner, destination) for destination in dict.fromkeys(destinations)]
        found = {item["pk"]: item for item in get_all(self._client, self._table, keys)}
        return {
            destination: read_health(owner, destination, found.get(health_key(owner, destination)["pk"]))
            for destination in destinations
        }

    # ── for the sender and the API ───────────────────────────────────────────────────────────────────────

    def record_outcomes(
        self, health: Health, outcomes: Sequence[AttemptOutcome], *, expires_at: int | None = None
    ) -> Health:
        """Add the outcomes of a batch to the counters, and open or drain the circuit if that follows from them.

        `health` was read before the batch. `expires_at` is for destinations that nobody deletes. A host's earlier
        success, which can be known from an endpoint, is written if its item has none.
        """
        ordered = sorted(outcomes, key=lambda outcome: outcome.at)
        update = Update()
        add_outcomes(update, ordered)
        if any(outcome.succeeded for outcome in ordered):
            update.sets |= self._draining() if health.is_open else {}
        elif health.is_open and any(outcome.probe for outcome in ordered):
            update.sets |= self._opened(min(MAX_OPEN_SECONDS, 2 * health.open_seconds))
        if expires_at is not None:
            update.sets["expires_at"] = expires_at
        if health.is_host and health.last_success_at and "last_success_at" not in update.sets:
            update.defaults["last_success_at"] = health.last_success_at
        recorded = self._apply(health, update) or health
        if recorded.is_open or recorded.consecutive_failures < self._to_open(recorded):
            return recorded
        return self._open(recorded) or recorded

    def start_draining(self, owner: str, destination: str, *, expires_at: int | None = None) -> None:
        """Have all held deliveries queued, because the endpoint was edited, disabled or deleted.

        `expires_at` is for a deleted one, which needs no health any more.
        """
        update = Update(sets={"consecutive_failures": 0} | self._draining(), removes=("failing_since",))
        if expires_at is not None:
            update.sets["expires_at"] = expires_at
        self._apply(Health(owner=owner, destination=destination), update)

    def release_host(self, owner: str, destination: str) -> None:
        """Have the deliveries queued that the open circuit of a host holds: some of them need not wait any more.

        The others show whether the host still fails: one failure opens its circuit again.
        """
        health = self.get(owner, destination)
        if health.is_open:
            self.half_open(health)

    # ── for the retry scheduler ──────────────────────────────────────────────────────────────────────────

    def due_circuits(self) -> Iterator[Health]:
        """Circuits that must be checked now, those with the earliest time first."""
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            IndexName="gsi2",
            KeyConditionExpression="gsi2pk = :pk AND gsi2sk <= :now",
            ExpressionAttributeValues={":pk": CIRCUIT_PARTITION, ":now": events.timestamp(self._clock())},
        )
        for page in pages:
            for entry in page["Items"]:
                yield self.get(*destination_in(entry))

    def begin_probe(self, health: Health) -> bool:
        """Whether the caller may send a probe now. Of concurrent callers one may."""
        return self._apply_if_unchecked(health, Update(sets=check_entry(self._clock() + PROBE_SECONDS)))

    def half_open(self, health: Health) -> None:
        """For a circuit that holds no delivery for a probe: the next attempt is made, and one failure opens it.

        Its state is draining, because a sender that has read it as open may still hold a delivery.
        """
        update = Update(sets={"consecutive_failures": self._to_open(health) - 1} | self._draining())
        self._apply_if_unchecked(health, update)

    def close(self, health: Health) -> None:
        """For a circuit that holds no delivery, after `draining_until`."""
        removes = (*CHECK_ATTRIBUTES, "open_seconds", "draining_until")
        self._apply_if_unchecked(health, Update(sets={"state": "closed"}, removes=removes))

    # ── updates ──────────────────────────────────────────────────────────────────────────────────────────

    def _to_open(self, health: Health) -> int:
        return health.failures_to_open(self._failures_to_open)

    def _open(self, health: Health) -> Health | None:
        """None if it is open."""
        condition = "attribute_not_exists(#state) OR #state <> :open"
        update = Update(sets=self._opened(MIN_OPEN_SECONDS))
        return self._apply(health, update, condition=condition, values={":open": "open"})

    def _opened(self, open_seconds: int) -> Item:
        at = self._clock() + open_seconds * self._spread(1 - JITTER, 1 + JITTER)
        return {"state": "open", "open_seconds": open_seconds} | check_entry(at)

    def _draining(self) -> Item:
        now = self._clock()
        return {"state": "draining", "draining_until": int(now) + DRAINING_SECONDS} | check_entry(now)

    def _apply_if_unchecked(self, health: Health, update: Update) -> bool:
        """False, without a write, if the time of the circuit's next check has changed since it was read."""
        values = {":seen": health.next_check_at}
        return bool(self._apply(health, update, condition="next_check_at = :seen", values=values))

    def _apply(
        self, health: Health, update: Update, *, condition: str = "", values: Mapping[str, Any] = {}
    ) -> Health | None:
        """The health after the update; None if the condition is false."""
        names = update.names | ({"#state": "state"} if "#state" in condition else {})
        options: Item = {"ConditionExpression": condition} if condition else {}
        try:
            answer = self._client.update_item(
                TableName=self._table,
                Key=health_key(health.owner, health.destination),
                UpdateExpression=update.expression,
                ExpressionAttributeNames=names,
                ExpressionAttributeValues=update.values | dict(values),
                ReturnValues="ALL_NEW",
                **options,
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return None
        return read_health(health.owner, health.destination, answer["Attributes"])
