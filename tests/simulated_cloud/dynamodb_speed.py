"""Faster replacements for parts of moto's DynamoDB that give the same result."""

from __future__ import annotations

import functools
import pickle
from collections import deque
from copy import deepcopy
from typing import Any

from moto.dynamodb.comparisons import ConditionExpressionParser
from moto.dynamodb.models.dynamo_type import DynamoType, LimitedSizeDict
from moto.dynamodb.models.table import Table
from moto.dynamodb.models.utilities import bytesize
from moto.dynamodb.parsing import validators
from moto.dynamodb.parsing.ast_nodes import DepthFirstTraverser, UpdateExpression
from moto.dynamodb.parsing.expressions import UpdateExpressionParser

SIZE_LIMIT = 405_000
query_all: Any = Table.query
lex: Any = ConditionExpressionParser._lex_condition_expression
set_checked: Any = LimitedSizeDict.__setitem__


def replacements() -> list[tuple[Any, str, Any]]:
    return [
        (Table, "query", query),
        (ConditionExpressionParser, "_lex_condition_expression", tokens),
        (UpdateExpressionParser, "make", update_expression),
        (validators, "deepcopy", copied),
        (DepthFirstTraverser, "nodes_to_be_processed", node_types),
        (LimitedSizeDict, "__setitem__", set_attribute),
    ]


def query(table: Table, *args: Any, hash_key_conditions: Any = None, **options: Any) -> Any:
    """Query among the items of one partition only. moto sorts all items of the table."""
    index = args[7] if len(args) > 7 else options.get("index_name")
    if not table.range_key_attr or not hash_key_conditions:
        return query_all(table, *args, hash_key_conditions=hash_key_conditions, **options)
    name, wanted = hash_key_conditions[0]
    if index:
        rows = (item for partition in table.items.values() for item in partition.values())
        found = [item for item in rows if (key := item.attrs.get(name)) and key.value == wanted.value]
    else:
        found = list(table.items.get(wanted, {}).values())
    return query_all(showing(table, found), *args, hash_key_conditions=hash_key_conditions, **options)


def showing(table: Table, items: list[Any]) -> Table:
    """The same table, which has only these items for those who look through all of them."""
    view: Any = object.__new__(Table)
    vars(view).update(vars(table), all_items=lambda: items)
    shown: Table = view
    return shown


def tokens(parser: ConditionExpressionParser) -> deque[Any]:
    return deque(tokens_of(parser.condition_expression))


@functools.cache
def tokens_of(expression: str | None) -> tuple[Any, ...]:
    return tuple(lex(ConditionExpressionParser(expression, None, None)))


update_expression = functools.cache(UpdateExpressionParser.make)


def copied(value: Any) -> Any:
    """The syntax tree of an update, which is shared and which the validator changes; copies of its values."""
    return pickle.loads(pickled(value)) if isinstance(value, UpdateExpression) else deepcopy(value)


@functools.cache
def pickled(expression: UpdateExpression) -> bytes:
    return pickle.dumps(expression)


def node_types(traverser: Any) -> tuple[Any, ...]:
    """moto makes the map of types and methods anew for each node."""
    if "types" not in vars(traverser):
        traverser.types = tuple(traverser._processing_map())
    found: tuple[Any, ...] = traverser.types
    return found


def set_attribute(attributes: Any, name: str, value: Any) -> None:
    """Add up all sizes only if an item can be too large. moto does so for each attribute."""
    if "written" not in vars(attributes):
        attributes.written = sum(size(*pair) for pair in attributes.items())
    attributes.written += size(name, value)
    if attributes.written > SIZE_LIMIT:
        set_checked(attributes, name, value)
    else:
        dict.__setitem__(attributes, name, value)


def size(name: str, value: Any) -> int:
    return int(bytesize(name) + (value.size() if type(value) is DynamoType else bytesize(str(value))))
