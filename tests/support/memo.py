"""Keeps what moto, boto3 and the functions would make anew each time, although it is always the same.

A document's way through the pipeline costs less than half of what it does without.
"""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from antlr4 import ParserRuleContext, RuleContext
from botocore.client import BaseClient
from botocore.model import Shape
from moto.core import responses
from moto.core.serialize import ResponseSerializer
from moto.dynamodb.models.table import Table
from moto.sqs import models as sqs_models
from moto.stepfunctions.parser.asl.component.eval_component import EvalComponent
from moto.stepfunctions.parser.asl.component.state.exec.state_task import lambda_eval_utils
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service import state_task_service_sqs
from moto.stepfunctions.parser.asl.parse.asl_parser import AmazonStateLanguageParser
from moto.stepfunctions.parser.asl.parse.preprocessor import Preprocessor
from moto.stepfunctions.parser.asl.utils import boto_client, json_path

from core.aws import clients

MEMOISED = (
    (clients, "client"),
    (clients, "s3"),
    (clients, "dynamodb"),
    (json_path, "parse"),
    (responses, "camelcase_to_underscores"),
    (responses, "method_names_from_class"),
    (RuleContext, "getText"),
)
kept = [(owner, name, functools.cache(getattr(owner, name))) for owner, name in MEMOISED]
parse, get_value = AmazonStateLanguageParser.parse, ResponseSerializer.get_value
query_all = Table.query


@contextmanager
def installed() -> Iterator[None]:
    """Inside, definitions are parsed once, and functions that start cold find their clients made."""
    freeze()
    with ExitStack() as patches:
        for owner, name, replacement in (*kept, *replacements()):
            patches.enter_context(mock.patch.object(owner, name, replacement))
        yield


def replacements() -> list[tuple[Any, str, Any]]:
    return [
        (AmazonStateLanguageParser, "parse", staticmethod(program)),
        (ResponseSerializer, "get_value", value_of),
        (Table, "query", query),
        (sqs_models, "unix_time_millis", milliseconds),
        (lambda_eval_utils, "boto_client_for", client_for),
        (state_task_service_sqs, "boto_client_for", client_for),
    ]


@functools.cache
def freeze() -> None:
    """What is there by now stays for the session: no collection need visit it, which costs a quarter second."""
    gc.collect()
    gc.freeze()


@functools.cache
def tree(definition: str) -> ParserRuleContext:
    return parse(definition)[1]


def program(definition: str) -> tuple[EvalComponent, ParserRuleContext]:
    """A program of its own for each execution, since it counts retries; the tree below it is shared."""
    return Preprocessor().visit(tree(definition)), tree(definition)


@functools.cache
def client_of(region: str, service: str) -> BaseClient:
    return boto_client.boto_client_for(region, service)


def client_for(region: str, service: str, state_credentials: Any = None) -> BaseClient:
    """Step Functions' own clients; credentials make no difference to moto."""
    return client_of(region, service)


def value_of(serializer: ResponseSerializer, value: Any, key: str, shape: Shape) -> Any:
    """Of the ten types that a DynamoDB attribute can have, it has one; moto looks for each under eight names."""
    if type(value) is dict and shape.parent.name == "AttributeValue":
        return value.get(key)
    return get_value(serializer, value, key, shape)


def query(table: Table, *args: Any, hash_key_conditions: Any = None, **options: Any) -> Any:
    """Of an index moto looks at every item of the table, slowly; what is in another partition can be left out."""
    index = args[7] if len(args) > 7 else options.get("index_name")
    if not index or not hash_key_conditions:
        return query_all(table, *args, hash_key_conditions=hash_key_conditions, **options)
    name, wanted = hash_key_conditions[0][0], hash_key_conditions[0][1].value
    found = [
        item
        for rows in table.items.values()
        for item in rows.values()
        if (key := item.attrs.get(name)) and key.value == wanted
    ]
    with mock.patch.object(table, "all_items", return_value=found):
        return query_all(table, *args, hash_key_conditions=hash_key_conditions, **options)


def milliseconds() -> float:
    """The time for SQS, which asks for it twice for every message in a queue."""
    return round(1000 * time.time(), 3)
