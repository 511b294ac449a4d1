"""Event source mappings: Lambda's pollers for queues and streams, one call at a time.

moto's own triggers run inside the call that writes, one record each, without filters, partial failures or
retries; they are switched off.  The rules here are those of the Lambda developer guide, "Using Lambda with
Amazon SQS" and "... DynamoDB".
"""

from __future__ import annotations

import contextlib
import copy
import json
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from moto.awslambda.models import LambdaFunction
from moto.dynamodb.models import dynamodb_backends
from moto.sqs.models import Queue, sqs_backends

from . import patterns
from .calls import behind_the_scenes
from .clock import Clock
from .cooperative import EPSILON
from .functions import ACCOUNT, REGION, Functions, Outcome, short_name

RECEIVE_LIMIT = 10
MAX_BACKOFF = 60.0


@dataclass
class World:
    """What the pollers work with. `chance` makes deliveries unreliable: shuffled, and sometimes doubled."""

    clock: Clock
    functions: Functions
    client: Callable[[str], Any]
    chance: random.Random | None = None
    duplicates: float = 0.0

    def deliver(self, function: LambdaFunction, records: list[dict[str, Any]]) -> Outcome:
        outcome = self.functions.call(function, {"Records": records})
        if self.chance and self.chance.random() < self.duplicates:
            outcome = self.functions.call(function, {"Records": records})
        return outcome


class Malformed(Exception):
    """The function's list of failures is not one that Lambda understands: the whole batch counts as failed."""


def failed_items(outcome: Outcome, known: list[str]) -> set[str]:
    """The identifiers that the function reports as failed.

    Success is an empty or null list, an empty object or null.  Everything else that is not a list of
    `{"itemIdentifier": <one of the batch>}` fails the batch.
    """
    answer = outcome.value
    if answer is None:
        return set()
    if not isinstance(answer, dict):
        raise Malformed
    failures = answer.get("batchItemFailures") or []
    if not isinstance(failures, list):
        raise Malformed
    identifiers = {item.get("itemIdentifier") if isinstance(item, dict) else None for item in failures}
    if not identifiers <= set(known):
        raise Malformed
    return {str(identifier) for identifier in identifiers}


class Mapping:
    """What both kinds share. `paused` holds deliveries back until a test wants them."""

    def __init__(self, world: World, properties: dict[str, Any]) -> None:
        self.world = world
        self.uuid = str(uuid.uuid4())
        self.source = str(properties["EventSourceArn"])
        self.function = world.functions.get(properties["FunctionName"])
        self.name = short_name(self.function)
        self.reports = "ReportBatchItemFailures" in properties.get("FunctionResponseTypes", [])
        criteria = properties.get("FilterCriteria", {}).get("Filters", [])
        self.filters = [json.loads(entry["Pattern"]) for entry in criteria]
        self.enabled = properties.get("Enabled", True)
        self.paused = False
        for pattern in self.filters:
            patterns.check(pattern)

    def wants(self, record: dict[str, Any]) -> bool:
        return not self.filters or any(patterns.matches(pattern, record) for pattern in self.filters)

    def poll(self) -> int:
        """Deliver one batch, if there is one to deliver. Returns the number of records taken."""
        raise NotImplementedError

    def next_due(self) -> float | None:
        """When something that waits will be deliverable."""
        raise NotImplementedError

    def reset(self) -> None:
        self.paused = False


class QueueMapping(Mapping):
    """Reads a queue."""

    def __init__(self, world: World, properties: dict[str, Any]) -> None:
        super().__init__(world, properties)
        self.batch_size = int(properties.get("BatchSize", 10))
        self.queue_name = self.source.rsplit(":", 1)[1]

    def poll(self) -> int:
        if not model_of(self.queue_name).messages:  # much cheaper than asking
            return 0
        with behind_the_scenes():
            messages = self._receive()
        wanted = [message for message in messages if self._accepts(message)]
        if self.world.chance:
            self.world.chance.shuffle(wanted)
        failed = self._deliver(wanted) if wanted else set()
        with behind_the_scenes():
            for message in messages:
                if message["MessageId"] not in failed:
                    self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
        return len(messages)

    def next_due(self) -> float | None:
        return next_visible(model_of(self.queue_name), self.world.clock.time)

    @property
    def _sqs(self) -> Any:
        return self.world.client("sqs")

    @property
    def _url(self) -> str:
        return f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{self.queue_name}"

    def _receive(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        while len(messages) < self.batch_size:
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

    def _accepts(self, message: dict[str, Any]) -> bool:
        if not self.filters:
            return True
        record = queue_record(message, self.source)
        with contextlib.suppress(ValueError):
            record["body"] = json.loads(record["body"])
        return self.wants(record)

    def _deliver(self, messages: list[dict[str, Any]]) -> set[str]:
        identifiers = [message["MessageId"] for message in messages]
        records = [queue_record(message, self.source) for message in messages]
        outcome = self.world.deliver(self.function, records)
        if outcome.error:
            return set(identifiers)
        try:
            return failed_items(outcome, identifiers) if self.reports else set()
        except Malformed:
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


def model_of(queue_name: str) -> Queue:
    return sqs_backends[ACCOUNT][REGION].queues[queue_name]


def next_visible(queue: Queue, now: float) -> float | None:
    """When the next message that is in flight or delayed can be received."""
    # moto wants the clock to be past the time, not at it.
    times = [max(m.visible_at, m.delayed_until) / 1000 + 0.001 for m in queue._messages]
    return min((when for when in times if when > now + EPSILON), default=None)


class StreamMapping(Mapping):
    """Reads a DynamoDB stream: one shard, in order, and nothing passes a batch that fails."""

    def __init__(self, world: World, properties: dict[str, Any]) -> None:
        super().__init__(world, properties)
        self.batch_size = int(properties.get("BatchSize", 100))
        self.bisects = bool(properties.get("BisectBatchOnFunctionError"))
        self.max_retries = int(properties.get("MaximumRetryAttempts", -1))
        self.max_age = float(properties.get("MaximumRecordAgeInSeconds", -1))
        destination = properties.get("DestinationConfig", {}).get("OnFailure", {})
        self.destination: str | None = destination.get("Destination")
        self.table_name = self.source.split("/")[1]
        self.reset()

    def reset(self) -> None:
        super().reset()
        self._position = 0
        self._sizes: list[int] = []
        self._attempts = 0
        self._retry_at = 0.0

    def poll(self) -> int:
        if self.world.clock.time + EPSILON < self._retry_at:
            return 0
        self._drop_expired()
        batch, end = self._next_batch()
        if not batch:
            self._position = end
            return 0
        outcome = self.world.deliver(self.function, [record for _, record in batch])
        kept = self._first_failed(outcome, batch)
        if kept is None:
            self._move_to(end)
        else:
            self._fail(batch[kept:], end, progress=kept > 0, outcome=outcome)
        return len(batch)

    def next_due(self) -> float | None:
        waiting = self._retry_at > self.world.clock.time + EPSILON and self._next_batch()[0]
        return self._retry_at if waiting else None

    def _records(self) -> list[dict[str, Any]]:
        shard = dynamodb_backends[ACCOUNT][REGION].tables[self.table_name].stream_shard
        assert shard is not None
        return [item.to_json() for item in shard.items[self._position :]]

    def _next_batch(self) -> tuple[list[tuple[int, dict[str, Any]]], int]:
        """The next records that pass the filter, with their positions, and the position after them."""
        size = self._sizes[-1] if self._sizes else self.batch_size
        batch: list[tuple[int, dict[str, Any]]] = []
        position = self._position
        for record in self._records():
            if len(batch) == size:
                break
            if self.wants(wired := stream_record(record, self.source)):
                batch.append((position, wired))
            position += 1
        return batch, position

    def _first_failed(self, outcome: Outcome, batch: list[tuple[int, dict[str, Any]]]) -> int | None:
        """Where in the batch the retry starts: at the lowest number reported, whatever came after it."""
        if outcome.error:
            return 0
        if not self.reports:
            return None
        numbers = [record["dynamodb"]["SequenceNumber"] for _, record in batch]
        try:
            failed = failed_items(outcome, numbers)
        except Malformed:
            return 0
        return min((numbers.index(number) for number in failed), default=None)

    def _fail(self, rest: list[tuple[int, dict[str, Any]]], end: int, *, progress: bool, outcome: Outcome) -> None:
        if progress:
            self._position, self._attempts = rest[0][0], 0
            self._resize(len(rest))
        if self.bisects and len(rest) > 1:
            half = len(rest) // 2
            self._resize(len(rest) - half, half)
            return
        self._attempts += 1
        if 0 <= self.max_retries < self._attempts:
            self._discard(rest, end, "RetryAttemptsExhausted", outcome)
        else:
            self._resize(len(rest))
            self._retry_at = self.world.clock.time + min(2.0 ** (self._attempts - 1), MAX_BACKOFF)

    def _resize(self, *sizes: int) -> None:
        """What to read next, last size first, in place of the batch just read."""
        if self._sizes:
            self._sizes.pop()
        self._sizes += sizes

    def _move_to(self, position: int) -> None:
        self._position, self._attempts, self._retry_at = position, 0, 0.0
        self._resize()

    def _drop_expired(self) -> None:
        batch, end = self._next_batch()
        if self.max_age < 0 or not batch or not self._attempts:
            return
        if self.world.clock.time - batch[0][1]["dynamodb"]["ApproximateCreationDateTime"] > self.max_age:
            self._discard(batch, end, "MaximumRecordAgeExceeded", None)

    def _discard(
        self, batch: list[tuple[int, dict[str, Any]]], end: int, condition: str, outcome: Outcome | None
    ) -> None:
        records = [record for _, record in batch]
        if self.destination:
            with behind_the_scenes():
                self._report(records, condition, outcome)
        self._move_to(end)

    def _report(self, records: list[dict[str, Any]], condition: str, outcome: Outcome | None) -> None:
        first, last = records[0]["dynamodb"], records[-1]["dynamodb"]
        now = datetime.fromtimestamp(self.world.clock.time, UTC)
        report = {
            "requestContext": {
                "requestId": outcome.invocation.request_id if outcome else str(uuid.uuid4()),
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
        service, name = self.destination.split(":")[2], self.destination.rsplit(":", 1)[1]
        if service == "s3":
            report["payload"] = json.dumps({"Records": records})
            key = f"aws/lambda/{self.uuid}/shardId-00000001541626099285-f35f62ef/{now:%Y/%m/%d}/"
            key += f"{now:%Y-%m-%dT%H.%M.%S}-{uuid.uuid4()}"
            self.world.client("s3").put_object(Bucket=name, Key=key, Body=json.dumps(report))
        elif service == "sqs":
            url = f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{name}"
            self.world.client("sqs").send_message(QueueUrl=url, MessageBody=json.dumps(report))
        else:
            self.world.client("sns").publish(TopicArn=self.destination, Message=json.dumps(report))


def _arrival(record: dict[str, Any]) -> str:
    when = datetime.fromtimestamp(record["ApproximateCreationDateTime"], UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def stream_record(record: dict[str, Any], source: str) -> dict[str, Any]:
    copied = copy.deepcopy(record)
    created = copied["dynamodb"]["ApproximateCreationDateTime"].replace(tzinfo=UTC)
    copied["dynamodb"]["ApproximateCreationDateTime"] = created.timestamp()
    return {**copied, "awsRegion": REGION, "eventSourceARN": source}


def mapping(world: World, properties: dict[str, Any]) -> Mapping:
    kind = properties["EventSourceArn"].split(":")[2]
    kinds: dict[str, type[Mapping]] = {"sqs": QueueMapping, "dynamodb": StreamMapping}
    return kinds[kind](world, properties)
