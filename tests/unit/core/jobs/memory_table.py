"""A DynamoDB table in memory, a thousand times faster than moto.

It supports only the forms of expressions that the code uses. `test_store.py` runs the same writers over this
table and over moto.
"""

from __future__ import annotations

import functools
import operator
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

from boto3.dynamodb.types import TypeSerializer
from botocore.exceptions import ClientError

typed = TypeSerializer().serialize
Item = dict[str, Any]
Place = tuple[str, str]


class ConditionalCheckFailed(ClientError):
    """`client.exceptions.ConditionalCheckFailedException`."""


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
        """Returns one item at a time, so that callers must request unprocessed keys."""
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
        return {"Attributes": copied(item)} if request.get("ReturnValues") else {}

    def transact_write_items(self, *, TransactItems: list[dict[str, Item]]) -> Item:
        requests = [(kind, request) for operation in TransactItems for kind, request in operation.items()]
        keys = [request["Item" if kind == "Put" else "Key"] for kind, request in requests]
        if len(set(map(place, keys))) < len(keys):
            raise ClientError({"Error": {"Code": "ValidationException"}}, "TransactWriteItems")
        held = [self._holds(key, request) for key, (_, request) in zip(keys, requests, strict=True)]
        if not all(held):
            raise canceled(*("None" if holds else "ConditionalCheckFailed" for holds in held))
        for kind, request in requests:
            match kind:
                case "Put":
                    self.items[place(request["Item"])] = stored(request["Item"])
                case "Delete":
                    self.items.pop(place(request["Key"]), None)
                case _:
                    assert kind == "ConditionCheck", f"unknown operation: {kind}"
        return {}

    def delete_item(self, *, Key: Item, **request: Any) -> Item:
        self._check(Key, request)
        self.items.pop(place(Key), None)
        return {}

    def get_paginator(self, operation: str) -> MemoryTable:
        assert operation == "query"
        return self

    def paginate(self, *, KeyConditionExpression: str, **request: Any) -> Iterator[Item]:
        """One page. An index contains the items with its keys, and returns keys only."""
        index = request.get("IndexName", "")
        names, values = attributes(request)
        found = [item for item in self.items.values() if f"{index}pk" in item and f"{index}sk" in item]
        found = [item for item in found if holds(KeyConditionExpression, item, names, values)]
        condition = request.get("FilterExpression")
        found = [item for item in found if not condition or holds(condition, item, names, values)]
        found.sort(key=lambda item: item[f"{index}sk"], reverse=not request.get("ScanIndexForward", True))
        limit = request.get("PaginationConfig", {}).get("MaxItems")
        keys = ("pk", "sk", f"{index}pk", f"{index}sk")
        shown = [{key: item[key] for key in keys} if index else copied(item) for item in found]
        yield {"Items": shown[:limit], "Count": len(shown[:limit])}

    def _check(self, key: Item, request: Mapping[str, Any]) -> None:
        if not self._holds(key, request):
            answer: Any = {"Error": {"Code": "ConditionalCheckFailedException"}}
            if request.get("ReturnValuesOnConditionCheckFailure") and place(key) in self.items:
                answer["Item"] = {name: typed(value) for name, value in self.items[place(key)].items()}
            raise ConditionalCheckFailed(answer, "Write")

    def _holds(self, key: Item, request: Mapping[str, Any]) -> bool:
        condition = request.get("ConditionExpression")
        return not condition or holds(condition, self.items.get(place(key), {}), *attributes(request))


def place(key: Item) -> Place:
    return key["pk"], key["sk"]


def attributes(request: Mapping[str, Any]) -> tuple[Mapping[str, str], Item]:
    return request.get("ExpressionAttributeNames", {}), request.get("ExpressionAttributeValues", {})


def stored(value: Any) -> Any:
    """A value as boto3 returns it: numbers are Decimal. Floats are refused, as in boto3."""
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
    """A copy of the containers in a value."""
    if isinstance(value, dict):
        return {key: copied(part) if isinstance(part, dict | list | set) else part for key, part in value.items()}
    return type(value)(map(copied, value)) if isinstance(value, list | set) else value


def holds(condition: str, item: Item, names: Mapping[str, str], values: Item) -> bool:
    return parsed(condition)(item, names, values)


Test = Callable[[Item, Mapping[str, str], Item], bool]
COMPARISONS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
TYPES = {"NULL": type(None), "S": str, "N": Decimal}
TOKEN = re.compile(r"\s*([#:]?\w+|<>|<=|>=|[=<>(),])")


@functools.cache
def parsed(condition: str) -> Test:
    """A condition as a function of the item: OR of AND of terms, optionally in brackets."""
    tokens = deque(TOKEN.findall(condition))
    assert "".join(tokens) == condition.replace(" ", ""), f"unknown expression: {condition}"
    test = any_of(tokens)
    assert not tokens, f"unknown expression: {condition}"
    return test


def any_of(tokens: deque[str]) -> Test:
    tests = [all_of(tokens)]
    while tokens and tokens[0] == "OR":
        tokens.popleft()
        tests.append(all_of(tokens))
    return lambda *item: any(test(*item) for test in tests)


def all_of(tokens: deque[str]) -> Test:
    tests = [term(tokens)]
    while tokens and tokens[0] == "AND":
        tokens.popleft()
        tests.append(term(tokens))
    return lambda *item: all(test(*item) for test in tests)


def term(tokens: deque[str]) -> Test:
    first, second = tokens.popleft(), tokens.popleft()
    if first == "(":
        tokens.appendleft(second)
        return closed(any_of(tokens), tokens)
    if second == "(":
        arguments = [tokens.popleft() for _ in range(tokens.index(")"))]
        return closed(function(first, arguments), tokens)
    if second == "BETWEEN":
        low, _, high = (tokens.popleft() for _ in range(3))
        return compared(first, lambda found, values: values[low] <= found <= values[high])
    if second == "IN":
        members = [tokens.popleft() for _ in range(tokens.index(")") + 1)]
        among = [member for member in members if member not in "(),"]
        return compared(first, lambda found, values: found in [values[member] for member in among])
    comparison, value = COMPARISONS[second], tokens.popleft()
    return compared(first, lambda found, values: bool(comparison(found, values[value])))


def closed(test: Test, tokens: deque[str]) -> Test:
    assert tokens.popleft() == ")"
    return test


def compared(name: str, compare: Callable[[Any, Item], bool]) -> Test:
    """A missing value makes every comparison false."""

    def test(item: Item, names: Mapping[str, str], values: Item) -> bool:
        path = names.get(name, name)
        return path in item and compare(item[path], values)

    return test


def function(name: str, arguments: list[str]) -> Test:
    path = arguments[0]
    match name:
        case "attribute_exists":
            return lambda item, names, values: names.get(path, path) in item
        case "attribute_not_exists":
            return lambda item, names, values: names.get(path, path) not in item
        case "begins_with":
            return compared(path, lambda found, values: str(found).startswith(values[arguments[2]]))
        case "attribute_type":
            return compared(path, lambda found, values: isinstance(found, TYPES[values[arguments[2]]]))
    raise AssertionError(f"unknown function: {name}")


def update(item: Item, expression: str, names: Mapping[str, str], values: Item) -> None:
    """SET, REMOVE and ADD in any order. ADD to a missing attribute creates it."""
    parts = re.split(r"\b(SET|REMOVE|ADD) ", expression)
    assert not parts[0], f"unknown expression: {expression}"
    was = dict(item)
    for clause, changes in zip(parts[1::2], parts[2::2], strict=True):
        for change in re.split(r", (?![^(]*\))", changes.strip()):
            CLAUSES[clause](item, was, change, names, values)


def set_path(item: Item, was: Item, change: str, names: Mapping[str, str], values: Item) -> None:
    match = re.fullmatch(r"(#?\w+) = (?:if_not_exists\((#?\w+), (:\w+)\)|(?:(\w+) \+ )?(:\w+))", change)
    assert match, f"unknown expression: {change}"
    name, kept, default, summand, value = match.groups()
    path = names.get(name, name)
    if kept:
        item[path] = was.get(names.get(kept, kept), stored(values[default]))
    else:
        item[path] = stored(values[value]) + was[summand] if summand else stored(values[value])


def add_to(item: Item, was: Item, change: str, names: Mapping[str, str], values: Item) -> None:
    name, value = change.split(" ")
    path, added = names.get(name, name), stored(values[value])
    item[path] = was.get(path, set()) | added if isinstance(added, set) else was.get(path, 0) + added


def remove(item: Item, was: Item, change: str, names: Mapping[str, str], values: Item) -> None:
    item.pop(names.get(change, change), None)


CLAUSES = {"SET": set_path, "ADD": add_to, "REMOVE": remove}
