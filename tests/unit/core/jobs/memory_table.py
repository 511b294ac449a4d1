"""A DynamoDB table in a dictionary: a thousand times faster than moto, and as strict.

It knows the few forms of expression that the code uses and refuses all others. `test_store.py` runs the same
machine of writers over this and over moto.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError

Item = dict[str, Any]
Place = tuple[str, str]


class ConditionalCheckFailed(ClientError):
    """What `client.exceptions` names ConditionalCheckFailedException."""


def canceled(*codes: str) -> ClientError:
    reasons = [{"Code": code} for code in codes]
    answer = {"Error": {"Code": "TransactionCanceledException"}, "CancellationReasons": reasons}
    return ClientError(answer, "TransactWriteItems")  # type: ignore[arg-type]


class MemoryTable:
    """Stands in for `boto3.resource("dynamodb").meta.client`, with one table of `pk` and `sk`."""

    exceptions = SimpleNamespace(ConditionalCheckFailedException=ConditionalCheckFailed)

    def __init__(self) -> None:
        self.items: dict[Place, Item] = {}

    def get_item(self, *, TableName: str, Key: Item, ConsistentRead: bool = False) -> Item:
        item = self.items.get(place(Key))
        return {"Item": copied(item)} if item else {}

    def batch_get_item(self, *, RequestItems: dict[str, Any]) -> Item:
        """One key at a time, so that callers must ask for what was left out."""
        ((table, request),) = RequestItems.items()
        first, *others = request["Keys"]
        found = self.get_item(TableName=table, Key=first)
        left = {table: {"Keys": others}} if others else {}
        return {"Responses": {table: list(found.values())}, "UnprocessedKeys": left}

    def put_item(self, *, Item: Item, **request: Any) -> Item:
        self._check(Item, request)
        self.items[place(Item)] = stored(Item)
        return {}

    def update_item(self, *, Key: Item, UpdateExpression: str, **request: Any) -> Item:
        self._check(Key, request)
        item = self.items.setdefault(place(Key), dict(Key))
        update(item, UpdateExpression, *attributes(request))
        return {"Attributes": copied(item)} if request.get("ReturnValues") == "ALL_NEW" else {}

    def transact_write_items(self, *, TransactItems: list[dict[str, Item]]) -> Item:
        puts = [operation["Put"] for operation in TransactItems]
        if len({place(put["Item"]) for put in puts}) < len(puts):
            raise ClientError({"Error": {"Code": "ValidationException"}}, "TransactWriteItems")
        codes = ["None" if self._holds(put["Item"], put) else "ConditionalCheckFailed" for put in puts]
        if set(codes) != {"None"}:
            raise canceled(*codes)
        self.items |= {place(put["Item"]): stored(put["Item"]) for put in puts}
        return {}

    def get_paginator(self, operation: str) -> MemoryTable:
        assert operation == "query"
        return self

    def paginate(self, *, KeyConditionExpression: str, **request: Any) -> Iterator[Item]:
        """One page. An index holds the items that have its keys, and shows keys alone."""
        index = request.get("IndexName", "")
        names, values = attributes(request)
        condition = re.sub(r"(\w+) BETWEEN (:\w+) AND (:\w+)", r"\1 >= \2 AND \1 <= \3", KeyConditionExpression)
        found = [item for item in self.items.values() if f"{index}pk" in item and f"{index}sk" in item]
        found = [item for item in found if holds(condition, item, names, values)]
        found.sort(key=lambda item: item[f"{index}sk"], reverse=not request.get("ScanIndexForward", True))
        limit = request.get("PaginationConfig", {}).get("MaxItems")
        shown = [{"pk": item["pk"], "sk": item["sk"]} if index else copied(item) for item in found]
        yield {"Items": shown[:limit]}

    def _check(self, key: Item, request: Mapping[str, Any]) -> None:
        if not self._holds(key, request):
            raise ConditionalCheckFailed({"Error": {"Code": "ConditionalCheckFailedException"}}, "Write")

    def _holds(self, key: Item, request: Mapping[str, Any]) -> bool:
        condition = request.get("ConditionExpression")
        return not condition or holds(condition, self.items.get(place(key), {}), *attributes(request))


def place(key: Item) -> Place:
    return key["pk"], key["sk"]


def attributes(request: Mapping[str, Any]) -> tuple[Mapping[str, str], Item]:
    return request.get("ExpressionAttributeNames", {}), request.get("ExpressionAttributeValues", {})


def stored(value: Any) -> Any:
    """A value as it comes back: every number a Decimal. Floats are refused, as boto3 does."""
    if isinstance(value, Mapping):
        return {key: stored(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [stored(part) for part in value]
    if isinstance(value, set):
        return {stored(part) for part in value}
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if isinstance(value, float):
        raise TypeError("Float types are not supported. Use Decimal types instead.")
    return value


def copied(value: Any) -> Any:
    """Scalars are immutable, so containers are all there is to copy."""
    if isinstance(value, dict):
        return {key: copied(part) if isinstance(part, dict | list | set) else part for key, part in value.items()}
    return type(value)(map(copied, value)) if isinstance(value, list | set) else value


def holds(condition: str, item: Item, names: Mapping[str, str], values: Item) -> bool:
    """Disjunctions of conjunctions, without brackets."""
    clauses = [clause.split(" AND ") for clause in condition.split(" OR ")]
    return any(all(term(part, item, names, values) for part in clause) for clause in clauses)


COMPARISONS = {
    "=": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
}


def term(text: str, item: Item, names: Mapping[str, str], values: Item) -> bool:
    if match := re.fullmatch(r"attribute_(not_)?exists\((#?\w+)\)", text):
        return (names.get(match[2], match[2]) in item) != bool(match[1])
    if match := re.fullmatch(r"begins_with\((\w+), (:\w+)\)", text):
        return str(item[match[1]]).startswith(values[match[2]])
    match = re.fullmatch(r"(#?\w+) (=|<|<=|>=) (:\w+)", text)
    assert match, f"unknown expression: {text}"
    name = names.get(match[1], match[1])
    return name in item and bool(COMPARISONS[match[2]](item[name], values[match[3]]))


def update(item: Item, expression: str, names: Mapping[str, str], values: Item) -> None:
    """`ADD set :members SET name = :value, other = if_not_exists(other, :value)`"""
    match = re.fullmatch(r"(?:ADD (\w+) (:\w+) ?)?(?:SET (.+))?", expression)
    assert match, f"unknown expression: {expression}"
    if match[1]:
        item[match[1]] = item.get(match[1], set()) | stored(values[match[2]])
    for name, kept, value in re.findall(r"(#?\w+) = (?:if_not_exists\((\w+), )?(:\w+)", match[3] or ""):
        if not kept or kept not in item:
            item[names.get(name, name)] = stored(values[value])
