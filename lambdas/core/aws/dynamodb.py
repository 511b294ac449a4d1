"""DynamoDB: batches of reads, and records of streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boto3.dynamodb.types import TypeDeserializer

_read = TypeDeserializer().deserialize


def batch_get(client: Any, wanted: Mapping[str, Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The items there are, by table; asks again for what DynamoDB left out. At most 100 keys, none of them twice.

    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html
    """
    found: dict[str, list[dict[str, Any]]] = {table: [] for table in wanted}
    rest: dict[str, Any] = {table: keys for table, keys in wanted.items() if keys["Keys"]}
    while rest:
        answer = client.batch_get_item(RequestItems=rest)
        for table, items in answer["Responses"].items():
            found[table] += items
        left = answer.get("UnprocessedKeys") or {}
        rest = {table: {**wanted[table], "Keys": keys["Keys"]} for table, keys in left.items()}
    return found


def stored(record: Mapping[str, Any]) -> dict[str, Any]:
    """The new item of a stream's record, as plain values."""
    return {key: _read(value) for key, value in record["dynamodb"]["NewImage"].items()}
