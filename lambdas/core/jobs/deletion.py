"""The deletion of a job that has a tombstone: its log, the items beside it, its files, and stored payloads.

Each step can be repeated, and the tombstone keeps what they need until all are done. So a run that was killed, or
that ran out of time, is continued by the next one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from core import jobs_table
from core.aws.blobs import Blobs, inputs_of, parked_key, results_of, work_folder
from core.aws.dynamodb import Item, batch_delete
from core.jobs.job import Job
from core.jobs.tombstones import Tombstone, Tombstones

DELETION = "job-deletion.requested"
"""The event in a message of the indexing queue. No kind has this name, since it has a hyphen."""
PAGE = 25
"""Items per step. An owner can have a thousand endpoints, so this many events may take some seconds."""

EraseDeliveries = Callable[[str, Collection[str]], Collection[str]]
"""(owner, ids of events) -> the ids of events with an attempt in progress. All other deliveries are erased."""


def request_deletion(sqs: Any, queue_url: str, tombstone: Tombstone) -> None:
    """Have `start_job` run the deletion."""
    body = json.dumps({"event": DELETION, "job_id": tombstone.job_id})
    sqs.send_message(QueueUrl=queue_url, MessageBody=body, MessageGroupId=tombstone.owner)


class Deletion:
    """`client` is a resource's client."""

    def __init__(
        self, client: Any, table: str, tombstones: Tombstones, blobs: Blobs, erase_deliveries: EraseDeliveries
    ) -> None:
        self._client, self._table, self._tombstones = client, table, tombstones
        self._blobs, self._erase_deliveries = blobs, erase_deliveries

    def cancel_deliveries(self, tombstone: Tombstone, *, until: float) -> None:
        """Erase the deliveries of the job, as many as possible until `until` (`time.monotonic`)."""
        for page in self._events(tombstone.job_id):
            self._erase_deliveries(tombstone.owner, [event["event_id"] for event in page])
            if time.monotonic() > until:
                return

    def run(self, job_id: str, *, clean_up: Callable[[Job], None], until: float) -> bool:
        """Delete what is left of a deleted job. Returns False if another run is needed.

        `clean_up(job)` does what is done after the end of each job. `until`: of `time.monotonic`.
        """
        tombstone = self._tombstones.find(job_id)
        if tombstone is None:
            return True
        if not self._delete_log(tombstone, until):
            return False
        if tombstone.job:
            clean_up(tombstone.job)
        self._delete_items(job_id)
        self._delete_steps(job_id)
        owner = tombstone.owner
        for prefix in (inputs_of(owner, job_id), work_folder(job_id), results_of(owner, job_id)):
            self._blobs.delete_all(prefix)
        self._tombstones.end_run(tombstone)
        return True

    def _delete_log(self, tombstone: Tombstone, until: float) -> bool:
        """Whether all is deleted. Events with an attempt in progress stay, because they name the delivery."""
        finished = True
        for page in self._events(tombstone.job_id):
            busy = self._erase_deliveries(tombstone.owner, [event["event_id"] for event in page])
            deletable = [event for event in page if event["event_id"] not in busy]
            self._blobs.delete([parked_key(event["event_id"]) for event in deletable])
            self._delete(deletable)
            finished = finished and not busy
            if time.monotonic() > until:
                return False
        return finished

    def _events(self, job_id: str) -> Iterator[list[Item]]:
        """Keys and ids of the job's events, page by page."""
        low = jobs_table.EVENT_PREFIX
        while page := self._query(jobs_table.job_pk(job_id), low, jobs_table.END_OF_EVENTS):
            yield page
            low = page[-1]["sk"] + " "  # the next key

    def _delete_items(self, job_id: str) -> None:
        """All items of the job but the tombstone. Of events, only late ones are left."""
        low = " "
        while page := self._query(jobs_table.job_pk(job_id), low, "~"):
            self._delete([item for item in page if item["sk"] != jobs_table.META])
            low = page[-1]["sk"] + " "  # the next key

    def _delete_steps(self, job_id: str) -> None:
        while page := self._query(jobs_table.steps_pk(job_id), jobs_table.STEP_PREFIX, jobs_table.END_OF_STEPS):
            self._delete(page)

    def _query(self, pk: str, low: str, high: str) -> list[Item]:
        """Keys and event ids of the first PAGE items of this partition between these sort keys."""
        answer = self._client.query(
            TableName=self._table,
            KeyConditionExpression="pk = :pk AND sk BETWEEN :low AND :high",
            ExpressionAttributeValues={":pk": pk, ":low": low, ":high": high},
            ProjectionExpression="pk, sk, event_id",
            ConsistentRead=True,
            Limit=PAGE,
        )
        items: list[Item] = answer["Items"]
        return items

    def _delete(self, items: Sequence[Item]) -> None:
        batch_delete(self._client, self._table, [{name: item[name] for name in ("pk", "sk")} for item in items])
