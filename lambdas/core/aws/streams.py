"""Records of a DynamoDB stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boto3.dynamodb.types import TypeDeserializer

_read = TypeDeserializer().deserialize


def stored(record: Mapping[str, Any]) -> dict[str, Any]:
    """The item that a stream record announces, as plain values."""
    return {key: _read(value) for key, value in record["dynamodb"]["NewImage"].items()}
