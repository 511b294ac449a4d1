"""Calls for items and messages answer the same with an HTTP request and without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError
from moto import mock_aws

from tests.simulated_cloud import caching, direct_calls

KEY = {"pk": "a", "sk": "1"}
ITEM = KEY | {
    "text": "ä",
    "number": 5,
    "none": None,
    "yes": True,
    "list": [1, {"N": "x"}],
    "map": {"a": {"b": 2}},
    "set": {"x"},
    "empty": {},
}
OTHER = KEY | {"sk": "2", "bytes": b"\x00\xff", "both": {b"1", b"2"}, "N": 7, "B": "x"}
KEYS = [("pk", "HASH"), ("sk", "RANGE")]
SCHEMA: dict[str, Any] = {
    "BillingMode": "PAY_PER_REQUEST",
    "KeySchema": [{"AttributeName": name, "KeyType": kind} for name, kind in KEYS],
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name, _ in KEYS],
}
CONDITION = {"ConditionExpression": "attribute_not_exists(pk)"}


@pytest.fixture(scope="module")
def client() -> Any:
    return boto3.resource("dynamodb", region_name="eu-west-1").meta.client


@pytest.fixture
def items(client: Any) -> Iterator[Any]:
    with mock_aws(config={"core": {"mock_credentials": False}}):
        client.create_table(TableName="items", **SCHEMA)
        yield client


def put(item: dict[str, Any], **more: Any) -> tuple[str, dict[str, Any]]:
    return "put_item", {"TableName": "items", "Item": item, **more}


def update(expression: str, values: dict[str, Any], **more: Any) -> tuple[str, dict[str, Any]]:
    given = {"UpdateExpression": expression, "ExpressionAttributeValues": values}
    return "update_item", {"TableName": "items", "Key": KEY, **given, **more}


def by_key(value: Any, **more: Any) -> tuple[str, dict[str, Any]]:
    given = {"KeyConditionExpression": "pk = :pk", "ExpressionAttributeValues": {":pk": value}}
    return "query", {"TableName": "items", **given, **more}


SCRIPTS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "writes": [
        put(ITEM),
        put(ITEM, ReturnValues="ALL_OLD"),
        put(OTHER),
        put(ITEM, **CONDITION),
        put(ITEM, **CONDITION, ReturnValuesOnConditionCheckFailure="ALL_OLD"),
        update("SET #n = :v ADD number :one", {":v": "b", ":one": 2}, ExpressionAttributeNames={"#n": "text"}),
        update("REMOVE none ADD fresh :one", {":one": 1}, ReturnValues="UPDATED_NEW"),
        update("SET pk = :v", {":v": 1}),
        update("SET text = :v", {":v": 1, ":unused": 2}),
        update("SET text", {":v": 1}),
        ("delete_item", {"TableName": "items", "Key": KEY, "ReturnValues": "ALL_OLD"}),
        ("delete_item", {"TableName": "items", "Key": KEY}),
        put({"pk": "a"}),
        put(KEY | {"large": "x" * 410_000}),
    ],
    "reads": [
        put(ITEM),
        put(OTHER),
        ("get_item", {"TableName": "items", "Key": KEY}),
        ("get_item", {"TableName": "items", "Key": KEY | {"sk": "2"}, "ConsistentRead": True}),
        ("get_item", {"TableName": "items", "Key": KEY | {"sk": "3"}}),
        ("get_item", {"TableName": "other", "Key": KEY}),
        by_key("a"),
        by_key("a", Limit=1),
        by_key("a", Limit=1, ExclusiveStartKey=KEY),
        by_key("a", ScanIndexForward=False, ProjectionExpression="sk"),
        by_key("a", Select="COUNT", ReturnConsumedCapacity="TOTAL"),
        by_key("none"),
        by_key(1),
        ("scan", {"TableName": "items"}),
        ("batch_get_item", {"RequestItems": {"items": {"Keys": [KEY, KEY | {"sk": "9"}]}}}),
    ],
    "transactions": [
        put(ITEM),
        ("transact_write_items", {"TransactItems": [{"Put": {"TableName": "items", "Item": OTHER}}]}),
        (
            "transact_write_items",
            {
                "TransactItems": [
                    {"Delete": {"TableName": "items", "Key": KEY}},
                    {"Put": {"TableName": "items", "Item": OTHER, **CONDITION}},
                ]
            },
        ),
        ("transact_get_items", {"TransactItems": [{"Get": {"TableName": "items", "Key": KEY}}]}),
        (
            "batch_write_item",
            {"RequestItems": {"items": [{"DeleteRequest": {"Key": KEY}}, {"PutRequest": {"Item": OTHER}}]}},
        ),
        by_key("a"),
    ],
}


QUEUE = {"QueueUrl": "https://sqs.eu-west-1.amazonaws.com/123456789012/queue"}
ALL = {"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]}
MESSAGE = {"MessageBody": "ä", "MessageGroupId": "g"}
TEXT = {"DataType": "String", "StringValue": "x"}
ENTRIES = [{"Id": "1", **MESSAGE}, {"Id": "2", **MESSAGE, "DelaySeconds": 9}]
MESSAGES: list[tuple[str, dict[str, Any]]] = [
    ("receive_message", QUEUE),
    ("send_message", QUEUE | MESSAGE),
    ("send_message", QUEUE | MESSAGE | {"MessageAttributes": {"a": TEXT}}),
    ("send_message", QUEUE | MESSAGE | {"MessageAttributes": {"a": {"DataType": "Binary", "BinaryValue": b"x"}}}),
    ("send_message", QUEUE | MESSAGE | {"DelaySeconds": 901}),
    ("send_message", QUEUE | {"MessageBody": "x" * 1_100_000}),
    ("send_message_batch", QUEUE | {"Entries": ENTRIES}),
    ("send_message_batch", QUEUE | {"Entries": [*ENTRIES, *ENTRIES]}),
    ("send_message_batch", QUEUE | {"Entries": []}),
    ("receive_message", QUEUE | ALL | {"MaxNumberOfMessages": 10, "VisibilityTimeout": 0}),
    ("receive_message", QUEUE | {"MaxNumberOfMessages": 11}),
    ("receive_message", QUEUE | ALL),
    ("receive_message", {"QueueUrl": f"{QUEUE['QueueUrl']}-other"}),
    ("change_message_visibility", QUEUE | {"ReceiptHandle": "unknown", "VisibilityTimeout": 1}),
    ("delete_message", QUEUE | {"ReceiptHandle": "unknown"}),
    ("delete_message_batch", QUEUE | {"Entries": [{"Id": "1", "ReceiptHandle": "unknown"}]}),
]
MADE = {"MessageId", "ReceiptHandle", "SentTimestamp", "ApproximateFirstReceiveTimestamp"}
"""Another value in each run."""


def outcomes(client: Any, script: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    """The answers, or the errors with all that they carry."""

    def outcome(operation: str, parameters: dict[str, Any]) -> Any:
        try:
            response = getattr(client, operation)(**parameters)
        except ClientError as error:
            response = error.response | {"raised": type(error).__name__, "text": str(error)}
        status = response.pop("ResponseMetadata")["HTTPStatusCode"]
        return operation, status, response

    return [outcome(*step) for step in script]


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_answers_are_the_same(items: Any, script: str) -> None:
    """Values of every type, pages, changes and errors are those of moto's HTTP interface."""
    over_http = outcomes(items, SCRIPTS[script])
    for item in items.scan(TableName="items")["Items"]:
        items.delete_item(TableName="items", Key={name: item[name] for name in KEY})
    with caching.installed():
        assert outcomes(items, SCRIPTS[script]) == over_http


@pytest.fixture
def sqs() -> Iterator[Any]:
    with mock_aws(config={"core": {"mock_credentials": False}}):
        yield boto3.client("sqs", region_name="eu-west-1")


def test_messages_are_the_same(sqs: Any) -> None:
    """Messages with their attributes, failed entries and errors are those of moto's HTTP interface."""
    sqs.create_queue(QueueName="queue")
    over_http = outcomes(sqs, MESSAGES)
    sqs.purge_queue(**QUEUE)
    with caching.installed():
        assert without(MADE, outcomes(sqs, MESSAGES)) == without(MADE, over_http)


def test_tables_and_queues_are_the_same(items: Any, sqs: Any) -> None:
    """A new table, a new queue, and the refusal of a second one are those of moto's HTTP interface."""
    tables = [("create_table", SCHEMA | {"TableName": name}) for name in ("new", "new")]
    queues = [("create_queue", {"QueueName": "new", "Attributes": {"DelaySeconds": str(n)}}) for n in (1, 1, 2)]
    over_http = outcomes(items, tables), outcomes(sqs, queues)
    items.delete_table(TableName="new")
    sqs.delete_queue(QueueUrl=over_http[1][0][2]["QueueUrl"])
    with caching.installed():
        found = outcomes(items, tables), outcomes(sqs, queues)
    assert without({"TableId", "CreationDateTime"}, found) == without({"TableId", "CreationDateTime"}, over_http)


def test_received_messages_are_handled(sqs: Any) -> None:
    """A receipt handle postpones and deletes its message."""
    sqs.create_queue(QueueName="queue")
    with caching.installed():
        for _ in range(3):
            sqs.send_message(**QUEUE, **MESSAGE)
        received = sqs.receive_message(**QUEUE, MaxNumberOfMessages=10)["Messages"]
        handles = [message["ReceiptHandle"] for message in received]
        sqs.change_message_visibility(**QUEUE, ReceiptHandle=handles[0], VisibilityTimeout=0)
        sqs.delete_message(**QUEUE, ReceiptHandle=handles[1])
        sqs.delete_message_batch(**QUEUE, Entries=[{"Id": "1", "ReceiptHandle": handles[2]}])
        assert len(sqs.receive_message(**QUEUE, MaxNumberOfMessages=10)["Messages"]) == 1


def without(names: set[str], value: Any) -> Any:
    """The value with its members of these names, but not what they are."""
    if isinstance(value, dict):
        return {key: None if key in names else without(names, member) for key, member in value.items()}
    return [without(names, member) for member in value] if isinstance(value, list | tuple) else value


def test_http_is_not_needed(items: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Items without binary values are read and written without a request."""
    sent: list[str] = []
    over_http: Callable[..., Any] = direct_calls.over_http

    def send(client: BaseClient, operation: Any, *more: Any) -> Any:
        sent.append(operation.name)
        return over_http(client, operation, *more)

    monkeypatch.setattr(direct_calls, "over_http", send)
    with caching.installed():
        for name, script in SCRIPTS.items():
            plain = [step for step in script if "bytes" not in repr(step)]
            assert outcomes(items, plain)
            assert not sent, name


def test_what_was_read_is_a_copy(items: Any) -> None:
    """Nobody changes an item by changing what he has read."""
    with caching.installed():
        items.put_item(TableName="items", Item=ITEM)
        first = items.get_item(TableName="items", Key=KEY)["Item"]
        first["map"]["a"]["b"] = 3
        first["list"].clear()
        assert items.get_item(TableName="items", Key=KEY)["Item"] == ITEM
