"""Corrects moto 5.2 where it differs from AWS or is too slow. Each correction has a test in tests/."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock
from urllib.parse import parse_qs, urlsplit

from moto.core import models
from moto.core.exceptions import JsonRESTError
from moto.core.utils import unix_time
from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.models.dynamo_type import Item
from moto.dynamodb.models.table import StreamShard, Table
from moto.dynamodb.responses import DynamoHandler
from moto.s3.exceptions import NoSuchUpload
from moto.s3.responses import S3Response
from moto.sqs.models import Message, SQSBackend
from moto.stepfunctions.parser.asl.component.common.error_name.custom_error_name import CustomErrorName
from moto.stepfunctions.parser.asl.component.common.error_name.error_name import ErrorName
from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name import StatesErrorName
from moto.stepfunctions.parser.asl.component.state.exec.state_map.iteration import iteration_worker

from .clock import Clock

TOKEN_SECONDS = 600


@contextmanager
def installed(clock: Clock) -> Iterator[None]:
    """Apply the corrections inside the block."""
    fixes: list[tuple[Any, str, Any]] = [
        (models, "CallbackResponse", callback_response),
        (SQSBackend, "is_message_valid_based_on_retention_period", within_retention),
        (DynamoHandler, "transact_write_items", idempotent(DynamoHandler.transact_write_items, clock)),
        (DynamoDBBackend, "transact_write_items", rolling_back(DynamoDBBackend.transact_write_items)),
        (StreamShard, "add", one_record_a_change(StreamShard.add)),
        (iteration_worker, "CustomErrorName", error_name_of),
        (S3Response, "_key_response", keeping_uploads_apart(S3Response._key_response)),
    ]
    with ExitStack() as patches:
        for owner, name, fix in fixes:
            patches.enter_context(mock.patch.object(owner, name, fix))
        # moto copies tables in transactions; `rolling_back` makes that unnecessary.
        patches.enter_context(mock.patch.object(Table, "__deepcopy__", lambda table, memo: table, create=True))
        yield


# moto makes a thousand of them whenever it starts.
callback_response = functools.cache(models.CallbackResponse)


def error_name_of(error_name: str | None) -> ErrorName:
    """An iteration of a Map may fail with a reserved error name, such as `States.Timeout`."""
    if error_name and error_name.startswith("States."):
        return StatesErrorName.from_name(error_name)
    return CustomErrorName(error_name)


def keeping_uploads_apart(original: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse a multipart upload id with another key or after completion. moto looks at the id only."""

    def respond(response: S3Response, request: Any, full_url: str) -> Any:
        for upload_id in parse_qs(urlsplit(full_url).query).get("uploadId", []):
            bucket = response.backend.get_bucket(response.parse_bucket_name_from_url(request, full_url))
            upload = bucket.multiparts.get(upload_id)
            if upload is None or upload.key_name != response.parse_key_name():
                raise NoSuchUpload(upload_id)
        return original(response, request, full_url)

    return respond


def one_record_a_change(original: Callable[..., None]) -> Callable[..., None]:
    """Write no stream record for a write without a change, and one for an update that creates an item.

    moto writes two for the latter: one for an item with only the key, then one for the change.
    """

    def add(shard: StreamShard, old: Item | None, new: Item | None) -> None:
        if old and new and old.attrs == new.attrs:
            return
        last = shard.items[-1].record if shard.items else {}
        original(shard, old, new)
        record = shard.items[-1].record
        if old is None and last.get("eventName") == "INSERT" and same_keys(last, record):
            del shard.items[-2]
            record["dynamodb"]["SequenceNumber"] = last["dynamodb"]["SequenceNumber"]

    return add


def same_keys(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(one["dynamodb"]["Keys"] == other["dynamodb"]["Keys"])


def within_retention(backend: SQSBackend, queue_name: str, message: Message) -> bool:
    """The same result as moto's, which is slow: it computes all attributes of the queue for each message."""
    retention = int(backend.get_queue(queue_name).message_retention_period)  # type: ignore[attr-defined]
    return retention + (message.sent_timestamp or 0) / 1000 > unix_time()


def idempotent(original: Callable[[DynamoHandler], Any], clock: Clock) -> Callable[[DynamoHandler], Any]:
    """Do a transaction with the same ClientRequestToken only once in ten minutes."""
    done: dict[str, tuple[float, Any, Any]] = {}

    def transact(handler: DynamoHandler) -> Any:
        token, items = handler.body.get("ClientRequestToken"), repr(handler.body["TransactItems"])
        when, same, answer = done.get(token, (0.0, None, None))
        if clock.time - when > TOKEN_SECONDS:
            answer = original(handler)
            done[token] = (clock.time, items, answer)
        elif same != items:
            raise JsonRESTError("IdempotentParameterMismatchException", "The parameters differ")
        return answer

    return transact


def rolling_back(original: Callable[..., None]) -> Callable[..., None]:
    """Undo a failed transaction item by item. moto copies whole tables and streams before each transaction."""

    def transact(backend: DynamoDBBackend, transact_items: list[dict[str, Any]]) -> None:
        undo = [undo_of(backend, operation) for item in transact_items for operation in item.values()]
        try:
            original(backend, transact_items)
        except BaseException:
            for restore in reversed(undo):
                restore()
            raise

    return transact


def undo_of(backend: DynamoDBBackend, operation: dict[str, Any]) -> Callable[[], None]:
    """A function that restores the item and the stream to their present state."""
    table = backend.tables.get(operation["TableName"].rsplit("/", 1)[-1])
    if table is None:
        return lambda: None
    source = operation.get("Key") or operation.get("Item") or {}
    key = {name: source[name] for name in table.table_key_attrs if name in source}
    if len(key) != len(table.table_key_attrs):
        return lambda: None
    before = copy.deepcopy(backend.get_item(table.name, key))
    length = len(table.stream_shard.items) if table.stream_shard else 0

    def restore() -> None:
        restore_item(backend, table, key, before)
        if table.stream_shard:
            del table.stream_shard.items[length:]

    return restore


def restore_item(backend: DynamoDBBackend, table: Table, key: dict[str, Any], before: Any) -> None:
    item: Any = before or backend.get_item(table.name, key)
    if item is None:
        return
    if table.range_key_attr is None:
        if before is None:
            del table.items[item.hash_key]
        else:
            table.items[item.hash_key] = before
        return
    if before is None:
        del table.items[item.hash_key][item.range_key]
    else:
        table.items[item.hash_key][item.range_key] = before
