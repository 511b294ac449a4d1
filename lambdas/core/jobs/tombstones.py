"""Tombstones: what is left of deleted jobs, by which late messages and repeated requests are recognized.

    job ──mark──▶ tombstone with the whole job ──end_run──▶ tombstone with ids only ──end_run──▶ not in gsi2
                  the first run deletes its data            the second one deletes late writes

gsi2 lists the tombstones that need another run of `Deletion`, by its time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from core import events, jobs_table
from core.aws.dynamodb import Item, UnexpiredItems
from core.errors import Conflict, Contended, NotFound
from core.jobs.job import Job
from core.jobs.rows import read_job

MAX_CONTENTIONS = 10
MIN_SECONDS = 86_400
"""A tombstone is kept as long as the job would have been, and at least so long, to finish the deletion."""
RERUN_SECONDS = 120
"""A run that did not finish is repeated after this time. An attempt of a webhook holds its delivery so long."""
LATE_SECONDS = 20 * 60
"""When the second run deletes what functions wrote that still worked on the job. They end within 15 minutes."""
MISSING = "There is no such job. Check the id; jobs are kept for a limited time."
KEPT = ("pk", "sk", "entity", "job_id", "owner", "kind", "deleted_at", "expires_at")


@dataclass(frozen=True, slots=True)
class Tombstone:
    """`job`: the deleted job, until the first run has finished."""

    job_id: str
    owner: str
    job: Job | None


class Tombstones:
    """Items of the jobs table. `client` is a resource's client."""

    def __init__(self, client: Any, table: str, *, clock: Callable[[], float] = time.time) -> None:
        self._client, self._table, self._clock = client, table, clock
        self._items = UnexpiredItems(client, table, clock)

    def mark(self, job_id: str, *, owner: str) -> Tombstone:
        """Put a tombstone in place of a job that has ended. Returns the present one if the job was deleted before.

        Raises NotFound, and Conflict if the job is open.
        """
        for _ in range(MAX_CONTENTIONS):
            item = self._items.get(jobs_table.job_key(job_id))
            if item is None or item["owner"] != owner:
                raise NotFound(MISSING)
            if is_tombstone(item):
                return _tombstone(item)
            job = read_job(item)
            if not job.is_final:
                raise Conflict(f"The job is {job.status}. Cancel it first: POST /jobs/{job_id}/cancel.")
            with suppress(self._client.exceptions.ConditionalCheckFailedException):
                self._client.put_item(
                    TableName=self._table,
                    Item=self._item(item),
                    ConditionExpression="#version = :version AND attribute_not_exists(deleted_at)",
                    ExpressionAttributeNames={"#version": "version"},
                    ExpressionAttributeValues={":version": job.version},
                )
                return Tombstone(job_id, owner, job)
        raise Contended("The job is being changed by too many writers at once.")

    def _item(self, item: Item) -> Item:
        """Not in the owner's list, and with another version, so that no change under way is written over it."""
        now = self._clock()
        kept = {name: value for name, value in item.items() if not name.startswith("gsi")}
        return kept | {
            "entity": "deleted_job",
            "version": int(item["version"]) + 1,
            "deleted_at": events.timestamp(now),
            "expires_at": max(int(item["expires_at"]), int(now) + MIN_SECONDS),
            **jobs_table.tombstone_gsi2(events.timestamp(now + RERUN_SECONDS)),
        }

    def find(self, job_id: str) -> Tombstone | None:
        """None if the job was not deleted."""
        item = self._items.get(jobs_table.job_key(job_id))
        return _tombstone(item) if item and is_tombstone(item) else None

    def due(self) -> Iterator[Tombstone]:
        """Those that need a run now. Each is due again after RERUN_SECONDS, unless the run finishes."""
        now = self._clock()
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            IndexName="gsi2",
            KeyConditionExpression="gsi2pk = :pk AND gsi2sk < :now",
            ExpressionAttributeValues={":pk": jobs_table.TOMBSTONES, ":now": events.timestamp(now)},
        )
        for entry in (entry for page in pages for entry in page["Items"]):
            found = self.find(jobs_table.job_id_of(entry["pk"]))
            if found:
                again = events.timestamp(now + RERUN_SECONDS)
                self._update(found, "SET gsi2sk = :again", "attribute_exists(gsi2sk)", {":again": again})
                yield found

    def end_run(self, tombstone: Tombstone) -> None:
        """Note that a run has finished: remove the job's attributes, or after the second run the index entry."""
        if tombstone.job is None:
            self._update(tombstone, "REMOVE gsi2pk, gsi2sk", "attribute_exists(deleted_at)")
            return
        item = self._items.get(jobs_table.job_key(tombstone.job_id))
        if item:
            later = events.timestamp(self._clock() + LATE_SECONDS)
            kept = {name: item[name] for name in KEPT}
            self._client.put_item(TableName=self._table, Item=kept | jobs_table.tombstone_gsi2(later))

    def _update(
        self, tombstone: Tombstone, change: str, condition: str, values: Mapping[str, str] | None = None
    ) -> None:
        with suppress(self._client.exceptions.ConditionalCheckFailedException):
            self._client.update_item(
                TableName=self._table,
                Key=jobs_table.job_key(tombstone.job_id),
                UpdateExpression=change,
                ConditionExpression=condition,
                **({"ExpressionAttributeValues": values} if values else {}),
            )


def is_tombstone(item: Mapping[str, Any]) -> bool:
    """Whether the item is not a job any more."""
    return "deleted_at" in item


def _tombstone(item: Item) -> Tombstone:
    return Tombstone(item["job_id"], item["owner"], read_job(item) if "status" in item else None)
