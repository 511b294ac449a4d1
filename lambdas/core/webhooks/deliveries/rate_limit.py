"""Rate limits of destinations: time slots for requests, one counter per destination in its health item."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from core.aws.batch import MAX_QUEUE_DELAY_SECONDS
from core.aws.dynamodb import Item
from core.webhooks.deliveries.health import health_key

HORIZON_MS = 1000 * MAX_QUEUE_DELAY_SECONDS  # slots further ahead cannot be queued


class RateLimiter:
    """The attribute `slot`, the next free slot in epoch milliseconds. `client` is a resource's client."""

    def __init__(self, client: Any, table: str, *, clock: Callable[[], float] = lambda: time.time()) -> None:
        self._client, self._table, self._clock = client, table, clock

    def reserve(self, owner: str, destination: str, *, rate: float) -> float | None:
        """Reserve the next free slot of a destination, in epoch seconds. `rate`: requests per second.

        None if that is further ahead than a queue can delay. A slot that is not used is lost.
        """
        key = health_key(owner, destination)
        interval, now = max(1, -int(-1000 // rate)), int(self._clock() * 1000)
        free = self._update(
            key,
            "SET slot = :next",
            condition="attribute_not_exists(slot) OR slot <= :now",
            values={":next": now + interval, ":now": now},
        )
        if free is not None:
            return now / 1000
        following = self._update(
            key,
            "SET slot = slot + :interval",
            condition="slot < :horizon",
            values={":interval": interval, ":horizon": now + HORIZON_MS},
        )
        return None if following is None else (following - interval) / 1000

    def _update(self, key: dict[str, str], expression: str, *, condition: str, values: Item) -> int | None:
        """The counter after the update; None if the condition is false."""
        try:
            answer = self._client.update_item(
                TableName=self._table,
                Key=key,
                UpdateExpression=expression,
                ConditionExpression=condition,
                ExpressionAttributeValues=values,
                ReturnValues="UPDATED_NEW",
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return None
        return int(answer["Attributes"]["slot"])
