"""Event source mappings: Lambda's pollers for SQS queues and DynamoDB streams.

They replace moto's triggers, which run during the call that writes and know no filters, partial failures or
retries. A poller delivers one batch at a time: there is no concurrency and no batching window.

https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html and https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html
"""

from __future__ import annotations

import copy
import json
import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from moto.awslambda.models import LambdaFunction
from moto.dynamodb.models import dynamodb_backends
from moto.sqs.models import Queue, sqs_backends

from . import event_patterns
from .calls import unrecorded_calls
from .clock import Clock
from .cooperative_threads import EPSILON
from .functions import ACCOUNT, REGION, Functions, InvocationResult, short_name
from .template import Unsupported

RECEIVE_LIMIT = 10
MAX_BACKOFF = 60.0


@dataclass
class PollerContext:
    """What all pollers share.

    With `rng`, messages are shuffled, and a batch is delivered twice with the probability `duplicates`.
    """

    clock: Clock
    functions: Functions
    client: Callable[[str], Any]
    rng: random.Random | None = None
    duplicates: float = 0.0

    def deliver(self, function: LambdaFunction, records: list[dict[str, Any]]) -> InvocationResult:
        result = self.functions.call(function, {"Records": records})
        if self.rng and self.rng.random() < self.duplicates:
            result = self.functions.call(function, {"Records": records})
        return result


class MalformedResponse(Exception):
    """Lambda does not understand the function's list of failures, so the whole batch counts as failed."""


def failed_items(result: InvocationResult, known: list[str]) -> set[str]:
    """The identifiers that the function reports as failed.

    An empty or null list, an empty object and null mean success. Raises `MalformedResponse` for everything else
    that is not a list of `{"itemIdentifier": <one of the batch>}`.
    """
    answer = result.value
    if answer is None:
        return set()
    if not isinstance(answer, dict):
        raise MalformedResponse
    failures = answer.get("batchItemFailures") or []
    if not isinstance(failures, list):
        raise MalformedResponse
    identifiers = {item.get("itemIdentifier") if isinstance(item, dict) else None for item in failures}
    if not identifiers <= set(known):
        raise MalformedResponse
    return {str(identifier) for identifier in identifiers}


class EventSourceMapping:
    """What both types of mappings share. `name` is the short name of the function."""

    def __init__(self, context: PollerContext, properties: dict[str, Any]) -> None:
        self.context = context
        self.uuid = str(uuid.uuid4())
        self.source = str(properties["EventSourceArn"])
        self.function = context.functions.get(properties["FunctionName"])
        self.name = short_name(self.function)
        self.reports = "ReportBatchItemFailures" in properties.get("FunctionResponseTypes", [])
        self.enabled = properties.get("Enabled", True)

    def poll(self) -> int:
        """Deliver one batch, if there is one. Returns the number of records that were read."""
        raise NotImplementedError

    def next_due(self) -> float | None:
        """When the next message or record that cannot be delivered yet becomes deliverable."""
        raise NotImplementedError

    def reset(self) -> None:
        """Start reading at the beginning."""


class QueueMapping(EventSourceMapping):
    """Polls a queue. Filters are not supported."""

    def __init__(self, context: PollerContext, properties: dict[str, Any]) -> None:
        super().__init__(context, properties)
        if "FilterCriteria" in properties:
            raise Unsupported(f"filters of the queue {self.source}")
        self.batch_size = int(properties.get("BatchSize", 10))
        self.queue_name = self.source.rsplit(":", 1)[1]

    def poll(self) -> int:
        if not moto_queue(self.queue_name).messages:  # much cheaper than a call
            return 0
        with unrecorded_calls():
            messages = self._receive()
        if self.context.rng:
            self.context.rng.shuffle(messages)
        failed = self._deliver(messages) if messages else set()
        with unrecorded_calls():
            self._delete([message for message in messages if message["MessageId"] not in failed])
        return len(messages)

    def next_due(self) -> float | None:
        return next_visible(moto_queue(self.queue_name), self.context.clock.time)

    @property
    def _sqs(self) -> Any:
        return self.context.client("sqs")

    @property
    def _url(self) -> str:
        return f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{self.queue_name}"

    def _receive(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        while len(messages) < self.batch_size and moto_queue(self.queue_name).messages:
            page = self._sqs.receive_message(
                QueueUrl=self._url,
                MaxNumberOfMessages=min(RECEIVE_LIMIT, self.batch_size - len(messages)),
                WaitTimeSeconds=0,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            ).get("Messages", [])
            if not page:
                break
            messages += page
        return messages

    def _delete(self, messages: list[dict[str, Any]]) -> None:
        handles = [message["ReceiptHandle"] for message in messages]
        for start in range(0, len(handles), RECEIVE_LIMIT):
            batch = enumerate(handles[start : start + RECEIVE_LIMIT])
            entries = [{"Id": str(index), "ReceiptHandle": handle} for index, handle in batch]
            self._sqs.delete_message_batch(QueueUrl=self._url, Entries=entries)

    def _deliver(self, messages: list[dict[str, Any]]) -> set[str]:
        identifiers = [message["MessageId"] for message in messages]
        records = [queue_record(message, self.source) for message in messages]
        result = self.context.deliver(self.function, records)
        if result.error:
            return set(identifiers)
        try:
            return failed_items(result, identifiers) if self.reports else set()
        except MalformedResponse:
            return set(identifiers)


def queue_record(message: dict[str, Any], source: str) -> dict[str, Any]:
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": dict(message["Attributes"]),
        "messageAttributes": {
            name: {
                "stringListValues": [],
                "binaryListValues": [],
                **{key[0].lower() + key[1:]: field for key, field in value.items()},
            }
            for name, value in message.get("MessageAttributes", {}).items()
        },
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": source,
        "awsRegion": REGION,
    }


def moto_queue(queue_name: str) -> Queue:
    return sqs_backends[ACCOUNT][REGION].queues[queue_name]


def next_visible(queue: Queue, now: float) -> float | None:
    """When the next message that is in flight or delayed becomes visible."""
    # moto makes a message visible after this time, not at it.
    times = [max(m.visible_at, m.delayed_until) / 1000 + 0.001 for m in queue._messages]
    return min((when for when in times if when > now + EPSILON), default=None)


class StreamMapping(EventSourceMapping):
    """Polls a DynamoDB stream: one shard, in order. A batch that fails blocks those behind it."""

    def __init__(self, context: PollerContext, properties: dict[str, Any]) -> None:
        super().__init__(context, properties)
        self.batch_size = int(properties.get("BatchSize", 100))
        self.bisects = bool(properties.get("BisectBatchOnFunctionError"))
        self.max_retries = int(properties.get("MaximumRetryAttempts", -1))
        self.max_age = float(properties.get("MaximumRecordAgeInSeconds", -1))
        criteria = properties.get("FilterCriteria", {}).get("Filters", [])
        self.filters = [json.loads(entry["Pattern"]) for entry in criteria]
        for pattern in self.filters:
            event_patterns.check(pattern)
        destination = properties.get("DestinationConfig", {}).get("OnFailure", {})
        self.destination: str | None = destination.get("Destination")
        if self.destination and self.destination.split(":")[2] != "s3":
            raise Unsupported(f"the failure destination {self.destination}")
        self.table_name = self.source.split("/")[1]
        self.reset()

    def reset(self) -> None:
        self._position = 0
        self._sizes: list[int] = []
        self._attempts = 0
        self._retry_at = 0.0

    def poll(self) -> int:
        if self.context.clock.time + EPSILON < self._retry_at:
            return 0
        self._drop_expired()
        batch, end = self._next_batch()
        if not batch:
            self._position = end
            return 0
        result = self.context.deliver(self.function, [record for _, record in batch])
        kept = self._first_failed(result, batch)
        if kept is None:
            self._move_to(end)
        else:
            self._fail(batch[kept:], end, progress=kept > 0, result=result)
        return len(batch)

    def next_due(self) -> float | None:
        waiting = self._retry_at > self.context.clock.time + EPSILON and self._next_batch()[0]
        return self._retry_at if waiting else None

    def _wants(self, record: dict[str, Any]) -> bool:
        return not self.filters or any(event_patterns.matches(pattern, record) for pattern in self.filters)

    def _records(self) -> Iterator[dict[str, Any]]:
        shard = dynamodb_backends[ACCOUNT][REGION].tables[self.table_name].stream_shard
        assert shard is not None
        return (item.to_json() for item in shard.items[self._position :])

    def _next_batch(self) -> tuple[list[tuple[int, dict[str, Any]]], int]:
        """The next records that pass the filter, with their positions, and the position after them."""
        size = self._sizes[-1] if self._sizes else self.batch_size
        batch: list[tuple[int, dict[str, Any]]] = []
        position = self._position
        for record in self._records():
            if len(batch) == size:
                break
            if self._wants(wired := stream_record(record, self.source)):
                batch.append((position, wired))
            position += 1
        return batch, position

    def _first_failed(self, result: InvocationResult, batch: list[tuple[int, dict[str, Any]]]) -> int | None:
        """The index in the batch at which the retry starts: the lowest sequence number reported as failed."""
        if result.error:
            return 0
        if not self.reports:
            return None
        numbers = [record["dynamodb"]["SequenceNumber"] for _, record in batch]
        try:
            failed = failed_items(result, numbers)
        except MalformedResponse:
            return 0
        return min((numbers.index(number) for number in failed), default=None)

    def _fail(
        self, rest: list[tuple[int, dict[str, Any]]], end: int, *, progress: bool, result: InvocationResult
    ) -> None:
        if progress:
            self._position, self._attempts = rest[0][0], 0
            self._resize(len(rest))
        if self.bisects and len(rest) > 1:
            half = len(rest) // 2
            self._resize(len(rest) - half, half)
            return
        self._attempts += 1
        if 0 <= self.max_retries < self._attempts:
            self._discard(rest, end, "RetryAttemptsExhausted", result)
        else:
            self._resize(len(rest))
            self._retry_at = self.context.clock.time + min(2.0 ** (self._attempts - 1), MAX_BACKOFF)

    def _resize(self, *sizes: int) -> None:
        """Replace the batch just read by batches of these sizes; the last of `sizes` is read first."""
        if self._sizes:
            self._sizes.pop()
        self._sizes += sizes

    def _move_to(self, position: int) -> None:
        self._position, self._attempts, self._retry_at = position, 0, 0.0
        self._resize()

    def _drop_expired(self) -> None:
        if self.max_age < 0 or not self._attempts:
            return
        batch, end = self._next_batch()
        if not batch:
            return
        if self.context.clock.time - batch[0][1]["dynamodb"]["ApproximateCreationDateTime"] > self.max_age:
            self._discard(batch, end, "MaximumRecordAgeExceeded", None)

    def _discard(
        self, batch: list[tuple[int, dict[str, Any]]], end: int, condition: str, result: InvocationResult | None
    ) -> None:
        records = [record for _, record in batch]
        if self.destination:
            with unrecorded_calls():
                self._report(records, condition, result)
        self._move_to(end)

    def _report(self, records: list[dict[str, Any]], condition: str, result: InvocationResult | None) -> None:
        first, last = records[0]["dynamodb"], records[-1]["dynamodb"]
        now = datetime.fromtimestamp(self.context.clock.time, UTC)
        report = {
            "requestContext": {
                "requestId": result.invocation.request_id if result else str(uuid.uuid4()),
                "functionArn": self.function.function_arn,
                "condition": condition,
                "approximateInvokeCount": self._attempts,
            },
            "responseContext": {"statusCode": 200, "executedVersion": "$LATEST", "functionError": "Unhandled"},
            "version": "1.0",
            "timestamp": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "DDBStreamBatchInfo": {
                "shardId": "shardId-00000001541626099285-f35f62ef",
                "startSequenceNumber": first["SequenceNumber"],
                "endSequenceNumber": last["SequenceNumber"],
                "approximateArrivalOfFirstRecord": _arrival(first),
                "approximateArrivalOfLastRecord": _arrival(last),
                "batchSize": len(records),
                "streamArn": self.source,
            },
        }
        self._send(report, records, now)

    def _send(self, report: dict[str, Any], records: list[dict[str, Any]], now: datetime) -> None:
        assert self.destination is not None
        bucket = self.destination.rsplit(":", 1)[1]
        report["payload"] = json.dumps({"Records": records})
        key = f"aws/lambda/{self.uuid}/shardId-00000001541626099285-f35f62ef/{now:%Y/%m/%d}/"
        key += f"{now:%Y-%m-%dT%H.%M.%S}-{uuid.uuid4()}"
        self.context.client("s3").put_object(Bucket=bucket, Key=key, Body=json.dumps(report))


def _arrival(record: dict[str, Any]) -> str:
    when = datetime.fromtimestamp(record["ApproximateCreationDateTime"], UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def stream_record(record: dict[str, Any], source: str) -> dict[str, Any]:
    copied = copy.deepcopy(record)
    created = copied["dynamodb"]["ApproximateCreationDateTime"].replace(tzinfo=UTC)
    copied["dynamodb"]["ApproximateCreationDateTime"] = created.timestamp()
    return {**copied, "awsRegion": REGION, "eventSourceARN": source}


def event_source_mapping(context: PollerContext, properties: dict[str, Any]) -> EventSourceMapping:
    kind = properties["EventSourceArn"].split(":")[2]
    kinds: dict[str, type[EventSourceMapping]] = {"sqs": QueueMapping, "dynamodb": StreamMapping}
    return kinds[kind](context, properties)
