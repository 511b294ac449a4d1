"""DynamoDB: reads that ignore expired items, batches of reads, and the records of streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from boto3.dynamodb.types import TypeDeserializer
from botocore.exceptions import ClientError

Item = dict[str, Any]
MAX_KEYS = 100
"""Of one batch of reads: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html"""
MAX_WRITES = 25
"""Of one batch: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchWriteItem.html"""
_plain = TypeDeserializer().deserialize


class UnexpiredItems:
    """Reads of a table without the items whose `expires_at` (epoch seconds) has passed; strongly consistent.

    DynamoDB deletes expired items up to some days later. `client` is a resource's client.
    """

    def __init__(self, client: Any, table: str, clock: Callable[[], float]) -> None:
        self._client, self._table, self._clock = client, table, clock

    def get(self, key: Mapping[str, str]) -> Item | None:
        answer = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True)
        item: Item | None = answer.get("Item")
        return item if item and self.is_unexpired(item) else None

    def query(self, pk: str, condition: str, values: Mapping[str, Any], *, limit: int | None = None) -> list[Item]:
        """The items of one partition whose sk meets the condition, in order. At most `limit` items are read."""
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            KeyConditionExpression=f"pk = :pk AND {condition}",
            ExpressionAttributeValues={":pk": pk, **values},
            ConsistentRead=True,
            PaginationConfig={"MaxItems": limit},
        )
        return [item for page in pages for item in page["Items"] if self.is_unexpired(item)]

    def count(self, pk: str, prefix: str, *, limit: int) -> int:
        """How many items of one partition have a sk with this prefix, at most `limit`. Eventually consistent."""
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table,
            KeyConditionExpression="pk = :pk AND begins_with(sk, :sk)",
            FilterExpression="expires_at > :now",
            ExpressionAttributeValues={":pk": pk, ":sk": prefix, ":now": int(self._clock())},
            Select="COUNT",
            PaginationConfig={"PageSize": limit},
        )
        found = 0
        for page in pages:
            found += page["Count"]
            if found >= limit:
                break
        return min(found, limit)

    def is_unexpired(self, item: Mapping[str, Any]) -> bool:
        return not is_expired(item, self._clock())


def is_expired(item: Mapping[str, Any], now: float) -> bool:
    """`now` is epoch seconds."""
    return int(item["expires_at"]) <= now


def batch_get(client: Any, wanted: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Item]]:
    """The items that exist, by table. Repeats the request for unprocessed keys. At most MAX_KEYS, each once."""
    found: dict[str, list[Item]] = {table: [] for table in wanted}
    rest: dict[str, Any] = {table: keys for table, keys in wanted.items() if keys["Keys"]}
    while rest:
        answer = client.batch_get_item(RequestItems=rest)
        for table, items in answer["Responses"].items():
            found[table] += items
        unprocessed = answer.get("UnprocessedKeys") or {}
        rest = {table: {**wanted[table], "Keys": keys["Keys"]} for table, keys in unprocessed.items()}
    return found


def get_all(client: Any, table: str, keys: Sequence[Mapping[str, str]], **options: Any) -> list[Item]:
    """The items of one table that exist, for any number of keys, each once.

    `options` are those of a table in a BatchGetItem request, such as `ConsistentRead`.
    """
    found: list[Item] = []
    for start in range(0, len(keys), MAX_KEYS):
        found += batch_get(client, {table: {"Keys": keys[start : start + MAX_KEYS], **options}})[table]
    return found


def batch_delete(client: Any, table: str, keys: Sequence[Mapping[str, str]]) -> None:
    """Delete these items. Repeats the request for unprocessed keys."""
    for start in range(0, len(keys), MAX_WRITES):
        batch = keys[start : start + MAX_WRITES]
        rest: Any = {table: [{"DeleteRequest": {"Key": key}} for key in batch]}
        while rest:
            rest = client.batch_write_item(RequestItems=rest).get("UnprocessedItems")


def new_image(record: Mapping[str, Any]) -> Item:
    """The item in a stream record as it is after the change, with plain Python values."""
    return _plain_item(record["dynamodb"]["NewImage"])


def refusing_item(error: ClientError) -> Item:
    """The item for which the condition of an UpdateItem request was false; empty if there was none.

    The request had `ReturnValuesOnConditionCheckFailure="ALL_OLD"`. boto3 does not convert it.
    """
    answer: Mapping[str, Any] = {**error.response}
    return _plain_item(answer.get("Item", {}))


def _plain_item(typed: Mapping[str, Any]) -> Item:
    return {key: _plain(value) for key, value in typed.items()}
