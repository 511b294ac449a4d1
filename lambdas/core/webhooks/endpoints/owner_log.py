"""The events that belong to an owner rather than to a job: `ping` and `endpoint.disabled`.

They are written like a job's, in a log of their own in the jobs table, so its stream announces them all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from core import events, ids


class OwnerLog:
    """`OWNER#{owner}` / `EVENT#{event_id}` in the jobs table. `client` is a resource's client."""

    def __init__(
        self,
        client: Any,
        table: str,
        *,
        retention_seconds: int,
        clock: Callable[[], float] = lambda: time.time(),
    ) -> None:
        self._client, self._table, self._clock = client, table, clock
        self._retention_seconds = retention_seconds

    def draft(self, owner: str, name: str, **facts: Any) -> tuple[str, dict[str, Any]]:
        """A new event's id, and the write that makes it known."""
        event_id, now = ids.new("evt"), self._clock()
        envelope = {"event": name, "event_id": event_id, "timestamp": events.timestamp(now)}
        item = {
            "pk": f"OWNER#{owner}",
            "sk": f"EVENT#{event_id}",
            "entity": "event",
            "event_id": event_id,
            "name": name,
            "kind": events.OWNER_KIND,
            "owner": owner,
            "timestamp": envelope["timestamp"],
            "expires_at": int(now) + self._retention_seconds,
            "body": events.encode({**facts, **envelope}),
        }
        return event_id, {"Put": {"TableName": self._table, "Item": item}}

    def append(self, owner: str, name: str, **facts: Any) -> str:
        """Write an event; returns its id."""
        event_id, operation = self.draft(owner, name, **facts)
        self._client.put_item(**operation["Put"])
        return event_id

    def page(self, owner: str, *, cursor: str | None = None, limit: int = 20) -> tuple[list[str], str | None]:
        """Bodies, newest first, and a cursor (an event id) for what follows, if anything does."""
        answer = self._client.query(
            TableName=self._table,
            KeyConditionExpression="pk = :pk AND sk BETWEEN :low AND :high",
            ExpressionAttributeValues={
                ":pk": f"OWNER#{owner}",
                ":low": "EVENT#",
                ":high": f"EVENT#{cursor}" if cursor else "EVENT#~",
            },
            ScanIndexForward=False,
            ConsistentRead=True,
            Limit=limit + 2,  # the cursor's own event, and one to know whether anything follows
        )
        found = [item for item in answer["Items"] if item["event_id"] != cursor and self._lives(item)]
        page = found[:limit]
        return [item["body"] for item in page], page[-1]["event_id"] if len(found) > limit else None

    def _lives(self, item: Mapping[str, Any]) -> bool:
        return int(item["expires_at"]) > self._clock()
