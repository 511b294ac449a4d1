"""How far a job is, in an item beside the job, and now and then in its log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from core import jobs_table
from core.aws.dynamodb import Item, UnexpiredItems
from core.jobs.job import Job
from core.jobs.machine import Change, report_progress

EVENT_SECONDS = 5
"""A job logs progress at most this often."""


class ProgressStore:
    """`apply` writes a change of a job: it logs the events. `client` is a resource's client."""

    def __init__(
        self,
        client: Any,
        table: str,
        items: UnexpiredItems,
        clock: Callable[[], float],
        apply: Callable[[str, Change], Job],
    ) -> None:
        self._client, self._table, self._items, self._clock, self._apply = client, table, items, clock, apply

    def expect_batches(self, job: Job, total: int) -> None:
        """Write the number of batches before the first is done, so that polling intervals can depend on it."""
        self._client.update_item(
            TableName=self._table,
            Key=jobs_table.progress_key(job.job_id),
            UpdateExpression="SET #total = :total, expires_at = :expires",
            ExpressionAttributeNames={"#total": "total"},
            ExpressionAttributeValues={":total": total, ":expires": job.expires_at},
        )

    def mark_batch(self, job: Job, batch: int, *, total: int) -> None:
        """Count a batch as done. Calling it twice counts the batch once."""
        self._write(job, "ADD done :done SET", {":done": {batch}, ":total": total})

    def report(self, job: Job, *, done: int, total: int) -> None:
        """Replace what the worker that holds the job reported before."""
        self._write(job, "SET done = :done,", {":done": done, ":total": total})

    def save(self, job: Job, *, done: int, total: int, cursor: str | None, was: str | None) -> bool:
        """Write how far a job that works through a list is, if no other worker did so since `load`.

        `cursor` is where to continue, None at the end. `was` is the cursor that `load` returned, None if there
        was no item. Returns False where another worker has moved it: nothing is written, so load it again.
        """
        values = {":done": done, ":total": total, ":cursor": cursor} | ({} if was is None else {":was": was})
        condition = {"ConditionExpression": "attribute_not_exists(pk)" if was is None else "#cursor = :was"}
        names = {"#cursor": "cursor"}
        try:
            self._write(job, "SET done = :done, #cursor = :cursor,", values, names=names, **condition)
        except self._client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def load(self, job_id: str) -> tuple[int, int, str | None] | None:
        """(done, total, cursor) as `save` wrote them, or None if nothing was saved."""
        item = self._items.get(jobs_table.progress_key(job_id))
        return (*counts(item), item.get("cursor")) if item else None

    def _write(
        self,
        job: Job,
        change: str,
        values: Mapping[str, Any],
        *,
        names: Mapping[str, str] | None = None,
        **condition: str,
    ) -> None:
        """Carry out the change, and log the progress if the last such event is old enough."""
        item = self._client.update_item(
            TableName=self._table,
            Key=jobs_table.progress_key(job.job_id),
            UpdateExpression=f"{change} #total = :total, expires_at = :expires, "
            "reported_at = if_not_exists(reported_at, :now)",
            ExpressionAttributeNames={"#total": "total", **(names or {})},
            ExpressionAttributeValues={":expires": job.expires_at, ":now": int(self._clock()), **values},
            ReturnValues="ALL_NEW",
            **condition,
        )["Attributes"]
        if self._claim_report(job.job_id, item):
            self._apply(job.job_id, report_progress(*counts(item)))

    def _claim_report(self, job_id: str, item: Item) -> bool:
        """Whether this writer logs the progress: of all that write at once, one moves `reported_at`."""
        now, last = int(self._clock()), int(item["reported_at"])
        if now - last < EVENT_SECONDS:
            return False
        try:
            self._client.update_item(
                TableName=self._table,
                Key=jobs_table.progress_key(job_id),
                UpdateExpression="SET reported_at = :now",
                ConditionExpression="reported_at = :last",
                ExpressionAttributeValues={":now": now, ":last": last},
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return False
        return True


def counts(item: Mapping[str, Any]) -> tuple[int, int]:
    """(done, total). Batches end in any order, and may end twice, so `done` is then a set of batch numbers."""
    done = item.get("done", 0)
    return len(done) if isinstance(done, set) else int(done), int(item["total"])
