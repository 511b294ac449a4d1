"""Queries over the indexes of the deliveries table: an owner's lists, and what is due, held or unsent.

Entries have only keys (`rows`), and can lag behind the items. `DeliveryStore.mark_queued` and `requeue` check each
delivery before they change it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from core import events
from core.aws.dynamodb import Item, get_all, is_expired
from core.webhooks.deliveries.model import UNSENT, Delivery
from core.webhooks.deliveries.rows import (
    delivery_key,
    due_partition,
    endpoint_partition,
    held_partition,
    id_of,
    read_delivery,
    unsent_partition,
)

MAX_EXAMINED = 1000  # entries per page of an owner's list
ENTRIES_PER_QUERY = 100
ITEMS_PER_READ = 50
LAST = "~"  # sorts after every sort key


class DeliveryIndex:
    """The indexes of one deliveries table. `client` is a resource's client."""

    def __init__(self, client: Any, table: str, *, clock: Callable[[], float] = lambda: time.time()) -> None:
        self._client, self._table, self._clock = client, table, clock

    # ── for owners ───────────────────────────────────────────────────────────────────────────────────────

    def page(
        self,
        owner: str,
        endpoint_id: str,
        *,
        status: str | None = None,
        event: str | None = None,
        since: str | None = None,
        cursor: str | None = None,
        limit: int = 20,
    ) -> tuple[list[Delivery], str | None]:
        """An endpoint's deliveries, newest first, and a cursor (a sort key) if more can follow.

        At most MAX_EXAMINED entries are examined, so a page can be short, or empty, and still have a cursor.
        """
        index, pk = ("gsi1", endpoint_partition(owner, endpoint_id))
        if status in UNSENT:
            index, pk = "gsi2", unsent_partition(owner, endpoint_id, status)
        found: list[Delivery] = []
        examined, last = 0, cursor
        for sort_key, delivery in self._newest_first(index, pk, before=cursor, since=since):
            if len(found) == limit or examined == MAX_EXAMINED:
                return found, last
            if delivery and status in (None, delivery.status) and event in (None, delivery.event):
                found.append(delivery)
            examined, last = examined + 1, sort_key
        return found, None

    def unsent(
        self, owner: str, endpoint_id: str, status: str, *, since: str, until: str, after: str = "", limit: int
    ) -> list[Item]:
        """Entries of deliveries that ended without success, created at `since` ≤ time < `until`, oldest first.

        `after` is the `gsi2sk` of the last entry of the call before.
        """
        pk = unsent_partition(owner, endpoint_id, status)
        found = self._first("gsi2", pk, low=max(since, after), high=until, limit=limit + 1)
        return [entry for entry in found if entry["gsi2sk"] != after][:limit]

    def count_unsent(self, owner: str, endpoint_id: str, status: str, *, since: str, until: str) -> int:
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            IndexName="gsi2",
            KeyConditionExpression="gsi2pk = :pk AND gsi2sk BETWEEN :low AND :high",
            ExpressionAttributeValues={
                ":pk": unsent_partition(owner, endpoint_id, status),
                ":low": since,
                ":high": until,
            },
            Select="COUNT",
        )
        return sum(page["Count"] for page in pages)

    # ── for the retry scheduler ──────────────────────────────────────────────────────────────────────────

    def due(self, shard: int) -> Iterator[Item]:
        """Entries of a shard whose deliveries must be queued now, oldest first."""
        yield from self._entries("gsi2", due_partition(shard), low="", high=events.timestamp(self._clock()))

    def held(self, owner: str, destination: str, *, until: str = LAST, limit: int) -> list[Item]:
        """Entries of deliveries that wait for a circuit and were first queued before `until`, oldest first."""
        return self._first("gsi2", held_partition(owner, destination), low="", high=until, limit=limit)

    # ── queries ──────────────────────────────────────────────────────────────────────────────────────────

    def _newest_first(
        self, index: str, pk: str, *, before: str | None, since: str | None
    ) -> Iterator[tuple[str, Delivery | None]]:
        """Sort key and delivery of each entry."""
        batch: list[Item] = []
        for entry in self._entries(index, pk, low=since or "", high=before or LAST, newest_first=True):
            if entry[f"{index}sk"] == before:
                continue
            batch.append(entry)
            if len(batch) == ITEMS_PER_READ:
                yield from self._items(index, batch)
                batch = []
        yield from self._items(index, batch)

    def _items(self, index: str, entries: Sequence[Item]) -> Iterator[tuple[str, Delivery | None]]:
        """The sort key of each entry with its delivery; None if that has expired or been deleted."""
        keys = [delivery_key(id_of(entry)) for entry in entries]
        found = get_all(self._client, self._table, keys, ConsistentRead=True)
        visible = {id_of(item): read_delivery(item) for item in found if not is_expired(item, self._clock())}
        for entry in entries:
            yield entry[f"{index}sk"], visible.get(id_of(entry))

    def _first(self, index: str, pk: str, *, low: str, high: str, limit: int) -> list[Item]:
        found = []
        for entry in self._entries(index, pk, low=low, high=high, per_query=min(limit, ENTRIES_PER_QUERY)):
            found.append(entry)
            if len(found) == limit:
                break
        return found

    def _entries(
        self,
        index: str,
        pk: str,
        *,
        low: str,
        high: str,
        newest_first: bool = False,
        per_query: int = ENTRIES_PER_QUERY,
    ) -> Iterator[Item]:
        if low > high:  # DynamoDB answers such a range with an error
            return
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            IndexName=index,
            KeyConditionExpression=f"{index}pk = :pk AND {index}sk BETWEEN :low AND :high",
            ExpressionAttributeValues={":pk": pk, ":low": low or " ", ":high": high},
            ScanIndexForward=not newest_first,
            PaginationConfig={"PageSize": per_query},
        )
        for page in pages:
            yield from page["Items"]
