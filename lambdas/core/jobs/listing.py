"""Lists of jobs: an owner's by time of submission, and open jobs whose deadline has passed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from core import events, jobs_table
from core.aws.dynamodb import Item, UnexpiredItems, get_all
from core.jobs.job import Job
from core.jobs.rows import read_job
from core.jobs.tombstones import is_tombstone

MAX_EXAMINED = 1000
"""Jobs that are read for one page."""


class JobListing:
    """Reads the indexes of the jobs table. `client` is a resource's client."""

    def __init__(self, client: Any, table: str, items: UnexpiredItems, clock: Callable[[], float]) -> None:
        self._client, self._table, self._items, self._clock = client, table, items, clock

    def page(
        self,
        owner: str,
        *,
        cursor: str | None = None,
        limit: int = 20,
        wanted: Callable[[Job], bool] = lambda _: True,
    ) -> tuple[list[Job], str | None]:
        """An owner's jobs, newest first, and the cursor of the next page (a job id), or None after the last.

        Reads at most MAX_EXAMINED jobs, so a page can be short or empty although there is a next one.
        """
        found: list[Job] = []
        last = cursor
        for examined, job in enumerate(self._newest_first(owner, before=cursor)):
            if len(found) == limit or examined == MAX_EXAMINED:
                return found, last
            if wanted(job):
                found.append(job)
            last = job.job_id
        return found, None

    def oldest_first(self, owner: str, *, after: str, before: str) -> Iterator[Job]:
        """An owner's jobs with ids between `after` and `before`, both exclusive."""
        pages = self._client.get_paginator("query").paginate(
            **self._between(owner, after, before), PaginationConfig={"PageSize": 50}
        )
        yield from (job for job in self._jobs_in(pages) if job.job_id not in (after, before))

    def count(self, owner: str, *, after: str, before: str) -> int:
        """About how many jobs `oldest_first` returns: expired jobs may be counted too."""
        pages = self._client.get_paginator("query").paginate(**self._between(owner, after, before), Select="COUNT")
        return sum(page["Count"] for page in pages)

    def by_ids(self, job_ids: Iterable[str]) -> dict[str, Job]:
        """Those of these jobs that exist, by id (strongly consistent)."""
        items = self._get_all([jobs_table.job_pk(job_id) for job_id in job_ids])
        return {jobs_table.job_id_of(pk): read_job(item) for pk, item in items.items()}

    def deleted(self, job_ids: Iterable[str]) -> set[str]:
        """Those of these jobs that were deleted."""
        keys = [jobs_table.job_key(job_id) for job_id in job_ids]
        options = {"ProjectionExpression": "pk, deleted_at", "ConsistentRead": True}
        found = get_all(self._client, self._table, keys, **options)
        return {jobs_table.job_id_of(item["pk"]) for item in found if is_tombstone(item)}

    def overdue(self) -> Iterator[str]:
        """The ids of open jobs whose deadline has passed."""
        now = events.timestamp(self._clock())
        for shard in range(jobs_table.ACTIVE_SHARDS):
            pages = self._client.get_paginator("query").paginate(
                TableName=self._table,
                IndexName="gsi2",
                KeyConditionExpression="gsi2pk = :pk AND gsi2sk < :now",
                ExpressionAttributeValues={":pk": jobs_table.open_jobs_gsi2pk(shard), ":now": now},
            )
            for page in pages:
                yield from (jobs_table.job_id_of(item["pk"]) for item in page["Items"])

    def _between(self, owner: str, after: str, before: str) -> dict[str, Any]:
        return {
            "TableName": self._table,
            "IndexName": "gsi1",
            "KeyConditionExpression": "gsi1pk = :owner AND gsi1sk BETWEEN :after AND :before",
            "ExpressionAttributeValues": {
                ":owner": jobs_table.owner_pk(owner),
                ":after": after,
                ":before": before,
            },
        }

    def _newest_first(self, owner: str, *, before: str | None) -> Iterator[Job]:
        condition, values = "gsi1pk = :owner", {":owner": jobs_table.owner_pk(owner)}
        if before:
            condition, values = f"{condition} AND gsi1sk < :before", values | {":before": before}
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            IndexName="gsi1",
            KeyConditionExpression=condition,
            ExpressionAttributeValues=values,
            ScanIndexForward=False,
            PaginationConfig={"PageSize": 50},
        )
        return self._jobs_in(pages)

    def _jobs_in(self, pages: Iterable[Mapping[str, Any]]) -> Iterator[Job]:
        """The present state of the jobs in pages of an index, which holds their keys only."""
        for page in pages:
            items = self._get_all([entry["pk"] for entry in page["Items"]])
            yield from (read_job(items[entry["pk"]]) for entry in page["Items"] if entry["pk"] in items)

    def _get_all(self, pks: Sequence[str]) -> dict[str, Item]:
        """The items of jobs, strongly consistent, by pk."""
        keys = [{"pk": pk, "sk": jobs_table.META} for pk in pks]
        found = get_all(self._client, self._table, keys, ConsistentRead=True)
        unexpired = (item for item in found if self._items.is_unexpired(item))
        return {item["pk"]: item for item in unexpired if not is_tombstone(item)}
