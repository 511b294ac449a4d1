"""Finds DynamoDB requests that DynamoDB rejects and moto accepts.

For clients of the boto3 resource, which take plain Python values. The checks of keys assume a single-table design:
keys `pk` and `sk`, global indexes `gsi1`, `gsi2`, … with keys `gsi1pk` and `gsi1sk`, …

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.html
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from moto.dynamodb.parsing.reserved_keywords import ReservedKeywords

Params = Mapping[str, Any]

_EXPRESSIONS = ("KeyConditionExpression", "ConditionExpression", "UpdateExpression", "FilterExpression")
_GRAMMAR = {"and", "or", "not", "in", "between", "set", "remove", "add", "delete"}
_FUNCTIONS = {"attribute_exists", "attribute_not_exists", "attribute_type", "begins_with", "if_not_exists", "size"}
_RESERVED = {word.lower() for word in ReservedKeywords.get_reserved_keywords()}
_KEY = re.compile("(gsi[0-9]+)?(pk|sk)")
_CLAUSE = re.compile(r"\b(SET|REMOVE|ADD|DELETE)\b")


class InvalidRequest(AssertionError):
    """DynamoDB would answer this request with ValidationException."""


def check_requests(client: Any) -> None:
    """Check all requests that this client makes from now on. They raise `InvalidRequest`."""
    client.meta.events.register("provide-client-params.dynamodb", _check, unique_id="dynamodb-rules")


def _check(params: Params, model: Any, **_: Any) -> None:
    problems = list(problems_of(model.name, params))
    if problems:
        raise InvalidRequest(f"{model.name}: {'; '.join(problems)}")


def problems_of(operation: str, params: Params) -> Iterator[str]:
    """The reasons for which DynamoDB would reject this request."""
    if operation == "BatchGetItem":
        yield from _batch_problems(params["RequestItems"])
    if operation == "TransactWriteItems":
        writes = [write for action in params["TransactItems"] for write in action.values()]
        yield from _twice("item", [_place(write.get("Item") or write["Key"]) for write in writes])
        for write in writes:
            yield from _expression_problems(write)
        return
    yield from _expression_problems(params)
    yield from _query_problems(params)


def _batch_problems(request: Params) -> Iterator[str]:
    keys = [(table, *_place(key)) for table, wanted in request.items() for key in wanted["Keys"]]
    yield from _twice("key", keys)
    if not 0 < len(keys) <= 100:
        yield f"{len(keys)} keys"


def _expression_problems(params: Params) -> Iterator[str]:
    text = " ".join(str(params[name]) for name in _EXPRESSIONS if name in params)
    names, values = params.get("ExpressionAttributeNames"), params.get("ExpressionAttributeValues")
    for kind, sign, given in (("names", "#", names), ("values", ":", values)):
        used = set(re.findall(rf"{sign}\w+", text))
        if given is not None and not given:
            yield f"empty {kind}"
        if used != set(given or {}):
            yield f"{kind} used and not given, or given and not used: {used ^ set(given or {})}"
    for word in re.findall(r"(?<![#:\w])[A-Za-z_]\w*", text):
        if word.lower() not in _GRAMMAR | _FUNCTIONS and word.lower() in _RESERVED:
            yield f"{word} is a reserved word"
    for item in (params.get("Item"), params.get("Key")):
        for name, value in (item or {}).items():
            if _KEY.fullmatch(name) and (not isinstance(value, str) or not value):
                yield f"the key {name} is {value!r}"
    yield from _twice(
        "path", [(names or {}).get(path, path) for path in _paths(params.get("UpdateExpression", ""))]
    )


def _paths(update: str) -> Iterator[str]:
    """The attributes that an update changes."""
    parts = _CLAUSE.split(update)[1:]
    for clause, body in zip(parts[::2], parts[1::2], strict=True):
        if clause == "SET":
            yield from re.findall(r"(#?\w+) =", body)
        else:
            yield from (change.split()[0] for change in body.split(","))


def _query_problems(params: Params) -> Iterator[str]:
    if params.get("IndexName", "").startswith("gsi") and params.get("ConsistentRead"):
        yield "a global index has no consistent reads"
    condition, values = params.get("KeyConditionExpression", ""), params.get("ExpressionAttributeValues", {})
    if "" in [values[name] for name in re.findall(r":\w+", condition) if name in values]:
        yield "an empty key value"
    between = re.search(r"BETWEEN (:\w+) AND (:\w+)", condition)
    if between and values[between[1]] > values[between[2]]:
        yield "the lower bound is above the upper one"


def _place(item: Params) -> tuple[str, str]:
    return item["pk"], item.get("sk", "")


def _twice(noun: str, things: list[Any]) -> Iterator[str]:
    yield from (f"the {noun} {thing} twice" for thing, count in Counter(things).items() if count > 1)
