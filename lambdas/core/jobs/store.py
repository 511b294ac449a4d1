"""Jobs in DynamoDB: a row, the log that is the outbox, and the transactions that keep the two in step.

What a change decides is written with its event in one transaction, conditioned on the row's version, and
decided again if another writer was faster.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from typing import Any

from botocore.exceptions import ClientError

from core import events, ids
from core.aws import errors as aws_errors
from core.aws.dynamodb import batch_get
from core.errors import ConditionFailed, Contended, InvalidRequest, NotFound
from core.events import Event
from core.jobs.job import Job
from core.jobs.kind import Kind
from core.jobs.machine import Change, report_progress
from core.jobs.polling_interval import History

MAX_CONTENTIONS = 10
MAX_EXAMINED = 1000
ACTIVE_SHARDS = 8  # a DynamoDB partition takes 1,000 writes a second; open jobs are spread over several
PROGRESS_EVENT_SECONDS = 5
MISSING = "There is no such job. Check the id; jobs are kept for a limited time."

Item = dict[str, Any]
Operation = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Idempotency:
    """A caller's key, and a fingerprint of what it was used for. Kept for `seconds`."""

    key: str
    fingerprint: str
    seconds: int


def well_formed(job_id: str) -> str:
    """The same, if a job can have it as its id: what a caller names may be anything, and is no key then."""
    if not ids.is_id("job", job_id):
        raise NotFound(MISSING)
    return job_id


def fingerprint(body: Any) -> str:
    """Equal for JSON that is equal as a value: whatever the order of keys, and whether it says 1 or 1.0."""
    return hashlib.sha256(json.dumps(_normal(body), sort_keys=True).encode()).hexdigest()


def _normal(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _normal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_normal(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


@dataclass(frozen=True, slots=True)
class Submission:
    job: Job
    replayed: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A job with what stands beside it: (done, total) batches or events, and the state of its webhook."""

    job: Job
    progress: tuple[int, int] | None
    webhook: Mapping[str, Any] | None


class JobStore:
    """Jobs and their logs in one DynamoDB table.

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

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────

    def get(self, job_id: str, *, owner: str | None = None) -> Job:
        """The job as it is now (strongly consistent). Another owner's job is NotFound, like none at all."""
        item = self._get({"pk": f"JOB#{job_id}", "sk": "META"})
        return self._visible(item, owner)

    def snapshot(self, job_id: str, *, owner: str | None = None) -> Snapshot:
        """META, PROGRESS and WEBHOOK sort behind the log, so one query reads the three and no event."""
        items = self._query(f"JOB#{job_id}", "sk >= :sk", {":sk": "META"})
        by_key = {item["sk"]: item for item in items}
        job = self._visible(by_key.get("META"), owner)
        progress = by_key.get("PROGRESS")
        return Snapshot(job, _counts(progress) if progress else None, by_key.get("WEBHOOK"))

    def events(self, job_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """The log from `after` (exclusive), in order."""
        values = {":low": f"EVENT#{after + 1:06d}", ":high": "EVENT#~"}
        items = self._query(f"JOB#{job_id}", "sk BETWEEN :low AND :high", values, limit=limit)
        return [Event.of(item) for item in items]

    def log(self, job_id: str, *, after: int = 0, page: int = 1000) -> Iterator[Event]:
        """All of it: a job of hours that reports its progress has more events than one page."""
        last = after
        while found := self.events(job_id, after=last, limit=page):
            yield from found
            last = found[-1].sequence or 0

    def events_before(self, job_id: str, sequence: int) -> Iterator[Event]:
        """The log before an event, backwards."""
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            KeyConditionExpression="pk = :pk AND sk BETWEEN :low AND :high",
            ExpressionAttributeValues={
                ":pk": f"JOB#{job_id}",
                ":low": "EVENT#",
                ":high": f"EVENT#{sequence - 1:06d}",
            },
            ScanIndexForward=False,
            ConsistentRead=True,
            PaginationConfig={"PageSize": 20},
        )
        for page in pages:
            yield from (Event.of(item) for item in page["Items"])

    def page(
        self,
        owner: str,
        *,
        cursor: str | None = None,
        limit: int = 20,
        wanted: Callable[[Job], bool] = lambda _: True,
    ) -> tuple[list[Job], str | None]:
        """An owner's jobs, newest first, and a cursor for what follows (a job id), if anything does.

        Looks at MAX_EXAMINED jobs at most, so a page of few wanted ones may be short, or empty, with a cursor.
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
        """An owner's jobs in the order of their submission, between two ids that are not among them."""
        pages = self._client.get_paginator("query").paginate(
            **self._between(owner, after, before), PaginationConfig={"PageSize": 50}
        )
        yield from (job for job in self._jobs_in(pages) if job.job_id not in (after, before))

    def count(self, owner: str, *, after: str, before: str) -> int:
        """How many jobs `oldest_first` gives, about: those that have expired may be among them."""
        pages = self._client.get_paginator("query").paginate(**self._between(owner, after, before), Select="COUNT")
        return sum(page["Count"] for page in pages)

    def _between(self, owner: str, after: str, before: str) -> dict[str, Any]:
        return {
            "TableName": self._table,
            "IndexName": "gsi1",
            "KeyConditionExpression": "gsi1pk = :owner AND gsi1sk BETWEEN :after AND :before",
            "ExpressionAttributeValues": {":owner": f"OWNER#{owner}", ":after": after, ":before": before},
        }

    def history(self, owner: str, kind: str) -> History:
        """How long an owner's last jobs of a kind took."""
        item = self._client.get_item(TableName=self._table, Key=_durations_key(owner, kind)).get("Item")
        return History(tuple(json.loads(item["seconds"]))) if item else History()

    def record_duration(self, job: Job) -> None:
        """Remember how long a completed job took. Of two that end at once one may be forgotten: it is a sample."""
        if job.status != "completed" or job.finished_at is None:
            return
        begun, ended = (datetime.fromisoformat(at).timestamp() for at in (job.created_at, job.finished_at))
        history = self.history(job.owner, job.kind).with_one(round(ended - begun, 3))
        item = _durations_key(job.owner, job.kind) | {"entity": "pace", "seconds": json.dumps(history.seconds)}
        self._client.put_item(TableName=self._table, Item=item | {"expires_at": job.expires_at})

    def overdue(self) -> Iterator[str]:
        """Ids of open jobs whose deadline has passed."""
        now = events.timestamp(self._clock())
        for shard in range(ACTIVE_SHARDS):
            pages = self._client.get_paginator("query").paginate(
                TableName=self._table,
                IndexName="gsi2",
                KeyConditionExpression="gsi2pk = :pk AND gsi2sk < :now",
                ExpressionAttributeValues={":pk": f"ACTIVE#{shard}", ":now": now},
            )
            for page in pages:
                yield from (item["pk"].removeprefix("JOB#") for item in page["Items"])

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────

    def submit(
        self, kind: Kind, job: Job, *, idempotency: Idempotency | None = None, also: Sequence[Operation] = ()
    ) -> Submission:
        """Write a new job, its first event, the idempotency key and `also` in one transaction.

        Raises InvalidRequest where the key was used for something else, and ConditionFailed where one of
        `also` found its condition broken.
        """
        job = replace(job, subject=kind.subject_of(job.input), sequence=1, steps=(kind.first,))
        operations = [
            self._put_job(job),
            self._put_event(job, kind.first, kind.announced(job.input), job.created_at),
            *also,
        ]
        if idempotency:
            operations.append(self._put_idempotency(job, idempotency))
        for _ in range(MAX_CONTENTIONS):
            codes = self._transact(operations)
            if codes is None:
                return Submission(job, replayed=False)
            if codes[0] == "ConditionalCheckFailed":  # by a try whose answer was lost
                return Submission(self.get(job.job_id), replayed=False)
            earlier = self._earlier(job.owner, idempotency) if idempotency else None
            if earlier:
                return Submission(earlier, replayed=earlier.job_id != job.job_id)
            if "ConditionalCheckFailed" in codes[2 : 2 + len(also)]:
                raise ConditionFailed("one of the writes that go with the job is out of date")
            self._pause()
        raise Contended("The job could not be written because others write at the same place. Try again.")

    def apply(self, job_id: str, change: Change, *, also: Sequence[Operation] = ()) -> Job:
        """Carry out a change and return the job as it is then.

        Raises what the change raises, and ConditionFailed where one of `also` found its condition broken.
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
            operations = [self._update_job(changed, was=job)]
            if transition.verb:
                operations.append(self._put_event(changed, transition.verb, transition.fields, now))
            codes = self._transact([*operations, *also])
            if codes is None:
                return changed
            if codes[: len(operations)] == ["None"] * len(operations) and "ConditionalCheckFailed" in codes:
                raise ConditionFailed("one of the writes that go with the job is out of date")
            self._pause()
        raise Contended("the job is being changed by too many writers at once")

    def expect_batches(self, job: Job, total: int) -> None:
        """Note how much there is to do before any of it is done: when a look is worth it follows from that."""
        self._client.update_item(
            TableName=self._table,
            Key={"pk": f"JOB#{job.job_id}", "sk": "PROGRESS"},
            UpdateExpression="SET #total = :total, expires_at = :expires",
            ExpressionAttributeNames={"#total": "total"},
            ExpressionAttributeValues={":total": total, ":expires": job.expires_at},
        )

    def mark_batch(self, job: Job, batch: int, *, total: int) -> None:
        """Count a batch as done, once however often it is called, and now and then say so in the log."""
        self._note_progress(job, {batch}, total)

    def report(self, job: Job, *, done: int, total: int) -> None:
        """Note how far a job is, by whoever holds it, and now and then say so in the log."""
        self._note_progress(job, done, total)

    def _note_progress(self, job: Job, done: int | set[int], total: int) -> None:
        """Batches are added to those that are done; a number replaces the one before."""
        key = {"pk": f"JOB#{job.job_id}", "sk": "PROGRESS"}
        change = "ADD done :done SET" if isinstance(done, set) else "SET done = :done,"
        item = self._client.update_item(
            TableName=self._table,
            Key=key,
            UpdateExpression=f"{change} #total = :total, expires_at = :expires, "
            "reported_at = if_not_exists(reported_at, :now)",
            ExpressionAttributeNames={"#total": "total"},
            ExpressionAttributeValues={
                ":done": done,
                ":total": total,
                ":expires": job.expires_at,
                ":now": int(self._clock()),
            },
            ReturnValues="ALL_NEW",
        )["Attributes"]
        if self._wins_report(key, item):
            self.apply(job.job_id, report_progress(*_counts(item)))

    def save_progress(self, job: Job, *, done: int, total: int, cursor: str | None, was: str | None) -> bool:
        """Note how far a job has worked through its list, and now and then say so in the log.

        `cursor` is where to go on, None at the end. `was` is the one that `load_progress` gave, None where
        nothing had been noted. False where another worker has moved it: nothing is written, so load it again.
        """
        key = {"pk": f"JOB#{job.job_id}", "sk": "PROGRESS"}
        values: Item = {":done": done, ":total": total, ":cursor": cursor, ":expires": job.expires_at}
        values |= {":now": int(self._clock())} | ({} if was is None else {":was": was})
        try:
            item = self._client.update_item(
                TableName=self._table,
                Key=key,
                UpdateExpression="SET done = :done, #total = :total, #cursor = :cursor, expires_at = :expires, "
                "reported_at = if_not_exists(reported_at, :now)",
                ConditionExpression="attribute_not_exists(pk)" if was is None else "#cursor = :was",
                ExpressionAttributeNames={"#total": "total", "#cursor": "cursor"},
                ExpressionAttributeValues=values,
                ReturnValues="ALL_NEW",
            )["Attributes"]
        except self._client.exceptions.ConditionalCheckFailedException:
            return False
        if self._wins_report(key, item):
            self.apply(job.job_id, report_progress(done, total))
        return True

    def load_progress(self, job_id: str) -> tuple[int, int, str | None] | None:
        """(done, total, cursor) as `save_progress` left them, or None where nothing has been noted."""
        item = self._get({"pk": f"JOB#{job_id}", "sk": "PROGRESS"})
        return (*_counts(item), item.get("cursor")) if item else None

    def record_webhook(self, job_id: str, facts: Mapping[str, Any], *, at: str, expires_at: int) -> None:
        """What the attempt `at` this time to call the job's webhook came to, unless a later one is there."""
        item = {"pk": f"JOB#{job_id}", "sk": "WEBHOOK", "at": at, "expires_at": expires_at, **facts}
        with suppress(self._client.exceptions.ConditionalCheckFailedException):
            self._client.put_item(
                TableName=self._table,
                Item=item,
                ConditionExpression="attribute_not_exists(pk) OR #at <= :at",
                ExpressionAttributeNames={"#at": "at"},
                ExpressionAttributeValues={":at": at},
            )

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────

    def _wins_report(self, key: Mapping[str, str], item: Item) -> bool:
        """One writer reports at a time, at most every few seconds: whoever moves the stamp."""
        now, last = int(self._clock()), int(item["reported_at"])
        if now - last < PROGRESS_EVENT_SECONDS:
            return False
        try:
            self._client.update_item(
                TableName=self._table,
                Key=key,
                UpdateExpression="SET reported_at = :now",
                ConditionExpression="reported_at = :last",
                ExpressionAttributeValues={":now": now, ":last": last},
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def _get(self, key: Mapping[str, str]) -> Item | None:
        answer = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True)
        item: Item | None = answer.get("Item")
        return item if item and int(item["expires_at"]) > self._clock() else None

    def _query(self, pk: str, condition: str, values: Item, *, limit: int = 1000) -> list[Item]:
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            KeyConditionExpression=f"pk = :pk AND {condition}",
            ExpressionAttributeValues={":pk": pk, **values},
            ConsistentRead=True,
            PaginationConfig={"MaxItems": limit},
        )
        return [item for page in pages for item in page["Items"] if int(item["expires_at"]) > self._clock()]

    def _visible(self, item: Item | None, owner: str | None) -> Job:
        if item is None or (owner is not None and item["owner"] != owner):
            raise NotFound(MISSING)
        return _job(item)

    def _newest_first(self, owner: str, *, before: str | None) -> Iterator[Job]:
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            IndexName="gsi1",
            KeyConditionExpression="gsi1pk = :owner" + (" AND gsi1sk < :before" if before else ""),
            ExpressionAttributeValues={":owner": f"OWNER#{owner}"} | ({":before": before} if before else {}),
            ScanIndexForward=False,
            PaginationConfig={"PageSize": 50},
        )
        return self._jobs_in(pages)

    def _jobs_in(self, pages: Iterable[Mapping[str, Any]]) -> Iterator[Job]:
        """The jobs that pages of an index tell of, as they are now."""
        for page in pages:
            rows = self._rows([entry["pk"] for entry in page["Items"]])
            yield from (_job(rows[entry["pk"]]) for entry in page["Items"] if entry["pk"] in rows)

    def _rows(self, pks: Sequence[str]) -> dict[str, Item]:
        """META of each of at most 100 jobs, as it is now: the index knows only which there are."""
        keys = [{"pk": pk, "sk": "META"} for pk in pks]
        found = batch_get(self._client, {self._table: {"Keys": keys, "ConsistentRead": True}})
        return {item["pk"]: item for item in found[self._table] if int(item["expires_at"]) > self._clock()}

    def _earlier(self, owner: str, idempotency: Idempotency) -> Job | None:
        """The job that this key was used for, if it was."""
        item = self._get(_idempotency_key(owner, idempotency.key))
        if item is None:
            return None
        if item["fingerprint"] != idempotency.fingerprint:
            raise InvalidRequest(
                "This Idempotency-Key was used for another request. Use a new key, or send the same body.",
                field="Idempotency-Key",
            )
        return self.get(item["job_id"])

    def _transact(self, operations: Sequence[Operation]) -> list[str] | None:
        """None if all was written, else why each was not (`None`, `ConditionalCheckFailed`, …)."""
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
        self._sleep(random.uniform(0.005, 0.05))  # noqa: S311 spreads writers apart, guards nothing

    def _put_job(self, job: Job) -> Operation:
        return {
            "Put": {
                "TableName": self._table,
                "Item": _item(job),
                "ConditionExpression": "attribute_not_exists(pk)",
            }
        }

    def _update_job(self, job: Job, *, was: Job) -> Operation:
        """The version stands for everything that was read; status and lease cannot have changed without it."""
        return {
            "Put": {
                "TableName": self._table,
                "Item": _item(job),
                "ConditionExpression": "#version = :version AND #status = :status",
                "ExpressionAttributeNames": {"#version": "version", "#status": "status"},
                "ExpressionAttributeValues": {":version": was.version, ":status": was.status},
            }
        }

    def _put_event(self, job: Job, verb: str, facts: Mapping[str, Any], now: str) -> Operation:
        return {
            "Put": {
                "TableName": self._table,
                "Item": _event_item(job, verb, facts, now),
                "ConditionExpression": "attribute_not_exists(pk)",
            }
        }

    def _put_idempotency(self, job: Job, idempotency: Idempotency) -> Operation:
        now = int(self._clock())
        return {
            "Put": {
                "TableName": self._table,
                "Item": _idempotency_key(job.owner, idempotency.key)
                | {
                    "entity": "idempotency",
                    "job_id": job.job_id,
                    "fingerprint": idempotency.fingerprint,
                    "expires_at": now + idempotency.seconds,
                },
                "ConditionExpression": "attribute_not_exists(pk) OR expires_at <= :now",
                "ExpressionAttributeValues": {":now": now},
            }
        }


def _durations_key(owner: str, kind: str) -> dict[str, str]:
    return {"pk": f"OWNER#{owner}", "sk": f"PACE#{kind}"}


def _idempotency_key(owner: str, key: str) -> dict[str, str]:
    return {"pk": f"IDEM#{owner}#{hashlib.sha256(key.encode()).hexdigest()}", "sk": "IDEM"}


def _item(job: Job) -> Item:
    """The row. A final job leaves the index of open ones by losing its key."""
    item = {key: value for key, value in asdict(job).items() if value is not None}
    item |= {"pk": f"JOB#{job.job_id}", "sk": "META", "entity": "job"}
    item |= {"gsi1pk": f"OWNER#{job.owner}", "gsi1sk": job.job_id}
    item |= {key: json.dumps(item[key]) for key in _AS_JSON if key in item}
    if not job.is_final:
        shard = int(hashlib.sha256(job.job_id.encode()).hexdigest(), 16) % ACTIVE_SHARDS
        item |= {"gsi2pk": f"ACTIVE#{shard}", "gsi2sk": job.deadline}
    return item


_AS_JSON = (
    "input",
    "subject",
    "metadata",
    "result",
    "error",
    "steps",
    "webhook_events",
)  # floats and order stay as they are
_NUMBERS = ("attempts", "version", "sequence", "expires_at")


def _job(item: Item) -> Job:
    known = {f.name for f in fields(Job)}
    values = {key: value for key, value in item.items() if key in known}
    values |= {key: int(values[key]) for key in _NUMBERS}
    values |= {key: json.loads(values[key]) for key in _AS_JSON if key in values}
    values |= {key: tuple(values[key]) for key in ("steps", "webhook_events")}
    return Job(**values)


def _counts(progress: Item) -> tuple[int, int]:
    """(done, total). Batches, which come in any order and twice, are a set; what goes in order is a number."""
    done = progress.get("done", 0)
    return len(done) if isinstance(done, set) else int(done), int(progress["total"])


def _event_item(job: Job, verb: str, facts: Mapping[str, Any], now: str) -> Item:
    event_id = ids.new("evt")
    name = f"{job.kind}.{verb}"
    envelope = {
        "event": name,
        "event_id": event_id,
        "job_id": job.job_id,
        "sequence": job.sequence,
        "timestamp": now,
        "status": job.status,
        "stage": job.stage,
        **job.subject,
    }
    return {
        "pk": f"JOB#{job.job_id}",
        "sk": f"EVENT#{job.sequence:06d}",
        "entity": "event",
        "event_id": event_id,
        "name": name,
        "job_id": job.job_id,
        "kind": job.kind,
        "owner": job.owner,
        "sequence": job.sequence,
        "status": job.status,
        "lifecycle": _lifecycle(job),
        "timestamp": now,
        "expires_at": job.expires_at,
        "body": events.encode({**facts, **envelope}),
    }


def _lifecycle(job: Job) -> str:
    """Of the event with which the job has become so."""
    if job.is_final:
        return events.ENDED
    return events.SUBMITTED if job.sequence == 1 else events.PROGRESS
