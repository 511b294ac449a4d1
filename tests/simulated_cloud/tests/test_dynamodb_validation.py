"""Requests that DynamoDB rejects and moto accepts."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from tests.simulated_cloud.dynamodb_validation import InvalidRequest, check_requests, problems_of
from tests.simulated_cloud.tests.sample import Sample

KEY = {"pk": "A", "sk": "B"}


def update(expression: str, **options: Any) -> tuple[str, dict[str, Any]]:
    return "UpdateItem", {"TableName": "t", "Key": KEY, "UpdateExpression": expression} | options


def query(condition: str, **options: Any) -> tuple[str, dict[str, Any]]:
    return "Query", {"TableName": "t", "KeyConditionExpression": condition} | options


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (update("SET status = :s", ExpressionAttributeValues={":s": 1}), "reserved"),
        (update("REMOVE owner"), "reserved"),
        (update("ADD slot :s", ExpressionAttributeValues={":s": 1, ":t": 2}), "values used"),
        (update("SET slot = :s"), "values used"),
        (update("SET #a = :s", ExpressionAttributeValues={":s": 1}), "names used"),
        (update("REMOVE slot", ExpressionAttributeValues={}), "empty values"),
        (update("SET slot = :s REMOVE slot", ExpressionAttributeValues={":s": 1}), "slot twice"),
        (
            update(
                "SET slot = :s ADD #a :s",
                ExpressionAttributeValues={":s": 1},
                ExpressionAttributeNames={"#a": "slot"},
            ),
            "slot twice",
        ),
        (query("pk = :p", ExpressionAttributeValues={":p": ""}), "empty key"),
        (
            query("pk = :p AND sk BETWEEN :a AND :b", ExpressionAttributeValues={":p": "x", ":a": "2", ":b": "1"}),
            "lower bound",
        ),
        (
            query("gsi1pk = :p", IndexName="gsi1", ConsistentRead=True, ExpressionAttributeValues={":p": "x"}),
            "consistent",
        ),
        (("PutItem", {"Item": KEY | {"gsi1pk": ""}}), "gsi1pk"),
        (("PutItem", {"Item": KEY | {"gsi2sk": None}}), "gsi2sk"),
        (("GetItem", {"Key": {"pk": "", "sk": "B"}}), "pk"),
        (("BatchGetItem", {"RequestItems": {"t": {"Keys": [KEY, KEY]}}}), "twice"),
        (("BatchGetItem", {"RequestItems": {"t": {"Keys": []}}}), "0 keys"),
        (("TransactWriteItems", {"TransactItems": [{"Put": {"Item": KEY}}, {"Delete": {"Key": KEY}}]}), "twice"),
    ],
)
def test_a_request_that_dynamodb_rejects_is_found(request_: tuple[str, dict[str, Any]], problem: str) -> None:
    """The problem says what is wrong."""
    (found,) = problems_of(*request_)
    assert problem in found


def test_a_valid_request_passes() -> None:
    """No problem is found in a valid request."""
    request = update(
        "SET #status = :new, slot = slot + :n, kept = if_not_exists(kept, :n) REMOVE gsi2pk, gsi2sk ADD tries :n",
        ConditionExpression="attribute_exists(pk) AND (#status IN (:old, :new) OR NOT begins_with(name_of, :old))",
        ExpressionAttributeNames={"#status": "status"},
        ExpressionAttributeValues={":new": "a", ":old": "b", ":n": 1},
    )
    assert list(problems_of(*request)) == []
    assert list(problems_of("PutItem", {"Item": KEY | {"note": "", "gsi1pk": "x"}})) == []


def test_the_requests_of_a_client_are_checked(sample: Sample) -> None:
    """An invalid request raises before it reaches moto."""
    table = boto3.resource("dynamodb").Table(sample.table("Table").name)
    check_requests(table.meta.client)
    with pytest.raises(InvalidRequest, match="reserved"):
        table.update_item(Key=KEY, UpdateExpression="REMOVE owner")
    table.update_item(Key=KEY, UpdateExpression="REMOVE slot")
