"""A job's events, in the order in which they were written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from core import jobs_table
from core.aws.dynamodb import UnexpiredItems
from core.events import Event


class JobLog:
    """Reads logs. Events are written with the job, by `JobStore`. `client` is a resource's client."""

    def __init__(self, client: Any, table: str, items: UnexpiredItems) -> None:
        self._client, self._table, self._items = client, table, items

    def read(self, job_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """At most `limit` events after sequence `after`, in order."""
        values = {":low": jobs_table.event_sk(after + 1), ":high": jobs_table.END_OF_EVENTS}
        condition = "sk BETWEEN :low AND :high"
        items = self._items.query(jobs_table.job_pk(job_id), condition, values, limit=limit)
        return [Event.of(item) for item in items]

    def read_all(self, job_id: str, *, after: int = 0, page_size: int = 1000) -> Iterator[Event]:
        """Every event after sequence `after`: a job that reports progress for hours has more than one page."""
        last = after
        while found := self.read(job_id, after=last, limit=page_size):
            yield from found
            last = found[-1].sequence or 0

    def read_backwards(self, job_id: str, *, before: int) -> Iterator[Event]:
        """The events before sequence `before`, latest first."""
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            KeyConditionExpression="pk = :pk AND sk BETWEEN :low AND :high",
            ExpressionAttributeValues={
                ":pk": jobs_table.job_pk(job_id),
                ":low": jobs_table.EVENT_PREFIX,
                ":high": jobs_table.event_sk(before - 1),
            },
            ScanIndexForward=False,
            ConsistentRead=True,
            PaginationConfig={"PageSize": 20},
        )
        for page in pages:
            yield from (Event.of(item) for item in page["Items"])
