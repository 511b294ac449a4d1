"""Jobs in DynamoDB. A change of a job and its event are written in one transaction.

The transaction is conditioned on the version of the job's item. If another writer changed the job first, the
change is decided again. The events are the outbox: the table's stream sends them on.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from botocore.exceptions import ClientError

from core import events, ids, jobs_table
from core.aws import errors as aws_errors
from core.aws.dynamodb import Item, UnexpiredItems
from core.errors import (
    ConditionFailed,
    Conflict,
    Contended,
    InvalidRequest,
    JobClosed,
    JobDeleted,
    NotFound,
)
from core.jobs.durations import Durations
from core.jobs.event_log import JobLog
from core.jobs.idempotency import Idempotency
from core.jobs.job import Job
from core.jobs.kind import QUEUED, Kind
from core.jobs.listing import JobListing
from core.jobs.machine import Change
from core.jobs.open_jobs import OpenJobs, Operation
from core.jobs.progress import ProgressStore, counts
from core.jobs.rows import event_item, job_item, read_job
from core.jobs.steps import StepStore
from core.jobs.tombstones import MISSING, is_tombstone

MAX_CONTENTIONS = 10
DELETED = "This job was deleted."
KEY_OF_DELETED = "The job of this Idempotency-Key was deleted. Use a new key to submit it again."
WRITE_FAILED = "the condition of a write in the job's transaction failed"


@dataclass(frozen=True, slots=True)
class Submission:
    """`replayed`: the job was submitted before with the same idempotency key."""

    job: Job
    replayed: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A job, its progress as (done, total) batches or events, the state of its last webhook, and its usage."""

    job: Job
    progress: tuple[int, int] | None
    webhook: Mapping[str, Any] | None
    usage: Mapping[str, Any] | None = None


def valid_job_id(text: str) -> str:
    """The same text. Raises NotFound for what cannot be a job's id: it may not become part of a key."""
    if not ids.is_id("job", text):
        raise NotFound(MISSING)
    return text


class JobStore:
    """Jobs, and beside them their `log`, `steps`, `progress`, `durations` and `open_jobs`; `listing` finds them.

    `client` is a resource's client (`boto3.resource("dynamodb").meta.client`), which takes plain Python values.
    """

    def __init__(
        self,
        client: Any,
        table: str,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = lambda seconds: time.sleep(seconds),
    ) -> None:
        self._client, self._table, self._clock, self._sleep = client, table, clock, sleep
        self._items = UnexpiredItems(client, table, clock)
        self.log = JobLog(client, table, self._items)
        self.steps = StepStore(client, table, self._items)
        self.listing = JobListing(client, table, self._items, clock)
        self.progress = ProgressStore(client, table, self._items, clock, self.apply)
        self.durations = Durations(client, table)
        self.open_jobs = OpenJobs(client, table, self._items, clock)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────

    def get(self, job_id: str, *, owner: str | None = None) -> Job:
        """The job (strongly consistent).

        Raises NotFound if it does not exist or has another owner, and its subclass JobDeleted if it was deleted.
        """
        return _visible(self._items.get(jobs_table.job_key(job_id)), owner)

    def require_open(self, job_id: str) -> None:
        """Raises JobClosed if the job has ended."""
        if self.get(job_id).is_final:
            raise JobClosed("the job has ended")

    def snapshot(self, job_id: str, *, owner: str | None = None) -> Snapshot:
        """The job and the items that sort after it, in one query. Raises NotFound as `get` does."""
        found = self._items.query(jobs_table.job_pk(job_id), "sk >= :sk", {":sk": jobs_table.META})
        by_sk = {item["sk"]: item for item in found}
        job = _visible(by_sk.get(jobs_table.META), owner)
        progress = by_sk.get(jobs_table.progress_key(job_id)["sk"])
        webhook = by_sk.get(jobs_table.webhook_key(job_id)["sk"])
        usage = by_sk.get(jobs_table.usage_key(job_id)["sk"])
        return Snapshot(job, counts(progress) if progress else None, webhook, usage)

    def job_of_key(self, owner: str, idempotency: Idempotency | None) -> Job | None:
        """The job that was submitted with this key before, if any.

        Raises InvalidRequest if the key was used with another request, and JobDeleted if the job was deleted.
        """
        if idempotency is None:
            return None
        item = self._items.get(jobs_table.idempotency_key(owner, idempotency.key))
        if item is None:
            return None
        if item["fingerprint"] != idempotency.fingerprint:
            raise InvalidRequest(
                "This Idempotency-Key was used for another request. Use a new key, or send the same body.",
                field="Idempotency-Key",
            )
        try:
            return self.get(item["job_id"])
        except JobDeleted:
            raise JobDeleted(KEY_OF_DELETED, field="Idempotency-Key") from None

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────

    def submit(
        self, kind: Kind, job: Job, *, idempotency: Idempotency | None = None, writes: Sequence[Operation] = ()
    ) -> Submission:
        """Write a new job, its first event, the idempotency key and `writes` in one transaction.

        Raises InvalidRequest if the key was used with another request, JobDeleted if its job was deleted, Conflict
        if another open job of an exclusive kind has the same subject, ConditionFailed if the condition of one of
        `writes` failed, and Contended after MAX_CONTENTIONS attempts.
        """
        verb, subject = kind.submitted_verb, kind.subject_of(job.input)
        exclusive = kind.exclusive_subject_of(job.input)
        job = replace(
            job, subject=subject, exclusive=exclusive, has_steps=kind.has_steps, sequence=1, steps=(verb,)
        )
        event = event_item(job, verb, kind.submitted_fields(job.input), job.created_at)
        operations = [self._put_new(job_item(job)), self._put_new(event), *writes, self.open_jobs.put_open(job)]
        if idempotency:
            operations.append(self._put_idempotency(job, idempotency))
        operations += self.open_jobs.put_exclusive(job)
        for _ in range(MAX_CONTENTIONS):
            codes = self._transact(operations)
            if codes is None:
                return Submission(job, replayed=False)
            if codes[0] == "ConditionalCheckFailed":  # an earlier attempt succeeded, and its response was lost
                return Submission(self.get(job.job_id), replayed=False)
            earlier = self.job_of_key(job.owner, idempotency)
            if earlier:
                return Submission(earlier, replayed=earlier.job_id != job.job_id)
            if "ConditionalCheckFailed" in codes[2 : 2 + len(writes)]:
                raise ConditionFailed(WRITE_FAILED)
            self._check_exclusive(job)
            self._pause()
        raise Contended("The job could not be written because other requests write the same items. Try again.")

    def apply(self, job_id: str, change: Change, *, writes: Sequence[Operation] = ()) -> Job:
        """Carry out a change, with `writes` in the same transaction, and return the changed job.

        Raises what the change raises, ConditionFailed if the condition of one of `writes` failed, and Contended
        after MAX_CONTENTIONS attempts.
        """
        for _ in range(MAX_CONTENTIONS):
            job = self.get(job_id)
            now = events.timestamp(self._clock())
            transition = change(job, now)
            if transition is None:
                return job
            changed = replace(
                transition.job,
                version=job.version + 1,
                updated_at=now,
                sequence=job.sequence + (1 if transition.verb else 0),
            )
            operations = [self._put_changed(changed, was=job)]
            if transition.verb:
                operations.append(self._put_new(event_item(changed, transition.verb, transition.fields, now)))
            if changed.is_final:
                operations += self.open_jobs.delete(changed)
            codes = self._transact([*operations, *writes])
            if codes is None:
                return changed
            if codes[: len(operations)] == ["None"] * len(operations) and "ConditionalCheckFailed" in codes:
                raise ConditionFailed(WRITE_FAILED)
            self._pause()
        raise Contended("the job is being changed by too many writers at once")

    def admit(self, job: Job, *, limit: int) -> bool:
        """Give a queued job one of its owner's `limit` places on state machines; True if it has one already.

        Two callers at once may give one place too many. Raises JobClosed if the job is not queued any more, and
        Contended after MAX_CONTENTIONS attempts.
        """
        operations = [self._check_queued(job), self.open_jobs.put_running(job)]
        for _ in range(MAX_CONTENTIONS):
            running = self.open_jobs.running(job.owner)
            if job.job_id in running:
                return True
            if len(running) >= limit:
                # One of them may have been left behind by a version without places. Each call looks at one.
                one = random.choice(running)  # noqa: S311
                if self._is_open(one):
                    return False
                self.open_jobs.remove_running(job.owner, one)
                continue
            codes = self._transact(operations)
            if codes is None:
                return True
            if codes[0] == "ConditionalCheckFailed":
                raise JobClosed("the job has started or ended")
            self._pause()
        raise Contended("the job is being changed by too many writers at once")

    def record_webhook(self, job_id: str, facts: Mapping[str, Any], *, at: str, expires_at: int) -> None:
        """Write the outcome of an attempt to call the job's webhook, unless there is one of a later attempt.

        `at`: when the attempt was made (RFC 3339 UTC).
        """
        item = {**jobs_table.webhook_key(job_id), "at": at, "expires_at": expires_at, **facts}
        with suppress(self._client.exceptions.ConditionalCheckFailedException):
            self._client.put_item(
                TableName=self._table,
                Item=item,
                ConditionExpression="attribute_not_exists(pk) OR #at <= :at",
                ExpressionAttributeNames={"#at": "at"},
                ExpressionAttributeValues={":at": at},
            )

    # ── transactions ─────────────────────────────────────────────────────────────────────────────────────

    def _transact(self, operations: Sequence[Operation]) -> list[str] | None:
        """None if all was written, else a code for each operation (`None`, `ConditionalCheckFailed`, …)."""
        try:
            self._client.transact_write_items(TransactItems=list(operations))
        except ClientError as error:
            if aws_errors.code(error) == "TransactionCanceledException":
                return aws_errors.cancellation_codes(error)
            if aws_errors.code(error) in ("TransactionConflictException", "TransactionInProgressException"):
                return ["TransactionConflict"] * len(operations)
            raise
        return None

    def _pause(self) -> None:
        self._sleep(random.uniform(0.005, 0.05))  # noqa: S311 jitter between writers

    def _put_new(self, item: Item) -> Operation:
        return {
            "Put": {
                "TableName": self._table,
                "Item": item,
                "ConditionExpression": "attribute_not_exists(pk)",
            }
        }

    def _check_queued(self, job: Job) -> Operation:
        return {
            "ConditionCheck": {
                "TableName": self._table,
                "Key": jobs_table.job_key(job.job_id),
                "ConditionExpression": "#status = :queued",
                "ExpressionAttributeNames": {"#status": "status"},
                "ExpressionAttributeValues": {":queued": QUEUED},
            }
        }

    def _check_exclusive(self, job: Job) -> None:
        """Raise Conflict if another open job has the subject. It is this job if the response was lost."""
        other = job.exclusive and self.open_jobs.exclusive_job(job.owner, job.kind, job.exclusive)
        if not other or other == job.job_id:
            return
        if self._is_open(other):
            raise Conflict(
                f"Another {job.kind} of {next(iter(job.subject))} {job.exclusive} is open: {other}. "
                "Wait until it has ended, or cancel it.",
                job_id=other,
            )
        self.open_jobs.remove_exclusive(job, other)

    def _is_open(self, job_id: str) -> bool:
        item = self._items.get(jobs_table.job_key(job_id))
        return item is not None and not read_job(item).is_final

    def _put_changed(self, job: Job, *, was: Job) -> Operation:
        """The version covers all attributes: none of them changes without it."""
        return {
            "Put": {
                "TableName": self._table,
                "Item": job_item(job),
                "ConditionExpression": "#version = :version AND #status = :status",
                "ExpressionAttributeNames": {"#version": "version", "#status": "status"},
                "ExpressionAttributeValues": {":version": was.version, ":status": was.status},
            }
        }

    def _put_idempotency(self, job: Job, idempotency: Idempotency) -> Operation:
        now = int(self._clock())
        facts = {
            "entity": "idempotency",
            "job_id": job.job_id,
            "fingerprint": idempotency.fingerprint,
            "expires_at": now + idempotency.seconds,
        }
        return {
            "Put": {
                "TableName": self._table,
                "Item": jobs_table.idempotency_key(job.owner, idempotency.key) | facts,
                "ConditionExpression": "attribute_not_exists(pk) OR expires_at <= :now",
                "ExpressionAttributeValues": {":now": now},
            }
        }


def _visible(item: Item | None, owner: str | None) -> Job:
    if item is None or (owner is not None and item["owner"] != owner):
        raise NotFound(MISSING)
    if is_tombstone(item):
        raise JobDeleted(DELETED)
    return read_job(item)
