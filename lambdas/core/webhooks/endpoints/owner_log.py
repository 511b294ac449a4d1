"""The log of an owner's own events, which belong to no job: `ping` and `endpoint.disabled`.

It is in the jobs table, so its stream publishes them like the events of jobs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from core import events, ids
from core.aws.dynamodb import is_expired
from core.jobs_table import END_OF_EVENTS, EVENT_PREFIX, owner_event_key, owner_pk


class OwnerLog:
    """Events of owners in the jobs table. `client` is a resource's client."""

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
        """The id of a new event, and the write that adds it to the log."""
        event_id, now = ids.new("evt"), self._clock()
        envelope = {"event": name, "event_id": event_id, "timestamp": events.timestamp(now)}
        item = {
            **owner_event_key(owner, event_id),
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
        """Write an event, and return its id."""
        event_id, operation = self.draft(owner, name, **facts)
        self._client.put_item(**operation["Put"])
        return event_id

    def page(self, owner: str, *, cursor: str | None = None, limit: int = 20) -> tuple[list[str], str | None]:
        """Bodies, newest first, and a cursor (an event id) if more follow."""
        answer = self._client.query(
            TableName=self._table,
            KeyConditionExpression="pk = :pk AND sk BETWEEN :low AND :high",
            ExpressionAttributeValues={
                ":pk": owner_pk(owner),
                ":low": EVENT_PREFIX,
                ":high": owner_event_key(owner, cursor)["sk"] if cursor else END_OF_EVENTS,
            },
            ScanIndexForward=False,
            ConsistentRead=True,
            Limit=limit + 2,  # also the cursor's own event, and one to see whether more follow
        )
        found = [
            item for item in answer["Items"] if item["event_id"] != cursor and not is_expired(item, self._clock())
        ]
        page = found[:limit]
        return [item["body"] for item in page], page[-1]["event_id"] if len(found) > limit else None
