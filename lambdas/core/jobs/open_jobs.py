"""Items that count an owner's open jobs, and the jobs of them that run on state machines.

They are written in the transaction that creates the job or lets it start, and deleted in the one that ends it.
Jobs of earlier versions have none, so a deletion has no condition. An item expires soon after the job's deadline,
when the reaper has ended the job. A version that does not know the items leaves them behind when it ends a job;
`JobStore` removes those that are in the way.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

from core import jobs_table
from core.aws.dynamodb import Item, UnexpiredItems
from core.jobs.job import Job

Operation = dict[str, Any]
"""One of `TransactItems` of a DynamoDB transaction."""

MARGIN_SECONDS = 3600
"""From a job's deadline to the expiry of its items. The reaper ends overdue jobs once a minute."""


class OpenJobs:
    """Reads the items, and makes the operations that write them. `client` is a resource's client."""

    def __init__(self, client: Any, table: str, items: UnexpiredItems, clock: Callable[[], float]) -> None:
        self._client, self._table, self._items, self._clock = client, table, items, clock

    def count(self, owner: str, *, limit: int) -> int:
        """The number of open jobs of all kinds, or `limit` if there are more. It may be a moment old."""
        return self._items.count(jobs_table.owner_pk(owner), jobs_table.OPEN_PREFIX, limit=limit)

    def running(self, owner: str) -> list[str]:
        """The ids of the jobs that have a place on a state machine."""
        prefix = jobs_table.RUNNING_PREFIX
        found = self._items.query(jobs_table.owner_pk(owner), "begins_with(sk, :sk)", {":sk": prefix})
        return [item["sk"].removeprefix(prefix) for item in found]

    def remove_running(self, owner: str, job_id: str) -> None:
        """Remove what a job left behind that has ended."""
        self._client.delete_item(TableName=self._table, Key=jobs_table.running_job_key(owner, job_id))

    def exclusive_job(self, owner: str, kind: str, subject: str) -> str | None:
        """The id of the open job of this kind about this subject, if the kind allows only one."""
        item = self._items.get(jobs_table.exclusive_key(owner, kind, subject))
        return item["job_id"] if item else None

    def remove_exclusive(self, job: Job, other: str) -> None:
        """Remove what the job `other` left behind, which has ended: `job` has the same subject."""
        with suppress(self._client.exceptions.ConditionalCheckFailedException):  # a third job has replaced it
            self._client.delete_item(
                TableName=self._table,
                Key=jobs_table.exclusive_key(job.owner, job.kind, str(job.exclusive)),
                ConditionExpression="job_id = :other",
                ExpressionAttributeValues={":other": other},
            )

    def put_open(self, job: Job) -> Operation:
        return self._put(jobs_table.open_job_key(job.owner, job.job_id), "open_job", job)

    def put_running(self, job: Job) -> Operation:
        return self._put(jobs_table.running_job_key(job.owner, job.job_id), "running_job", job)

    def put_exclusive(self, job: Job) -> list[Operation]:
        """On condition that no other job of the kind about the subject is open. Empty if another may be open."""
        if job.exclusive is None:
            return []
        key = jobs_table.exclusive_key(job.owner, job.kind, job.exclusive)
        operation = self._put(key, "exclusive_job", job, job_id=job.job_id)
        operation["Put"] |= {
            "ConditionExpression": "attribute_not_exists(pk) OR expires_at <= :now",
            "ExpressionAttributeValues": {":now": int(self._clock())},
        }
        return [operation]

    def delete(self, job: Job) -> list[Operation]:
        """All items of a job that ends."""
        keys = [
            jobs_table.open_job_key(job.owner, job.job_id),
            jobs_table.running_job_key(job.owner, job.job_id),
        ]
        if job.exclusive is not None:
            keys.append(jobs_table.exclusive_key(job.owner, job.kind, job.exclusive))
        return [{"Delete": {"TableName": self._table, "Key": key}} for key in keys]

    def _put(self, key: jobs_table.Key, entity: str, job: Job, **facts: str) -> Operation:
        expires_at = int(datetime.fromisoformat(job.deadline).timestamp()) + MARGIN_SECONDS
        item: Item = {**key, "entity": entity, "expires_at": expires_at, **facts}
        return {"Put": {"TableName": self._table, "Item": item}}
