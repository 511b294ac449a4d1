"""Fault injection, killed functions, interleavings and permissions."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.simulated_cloud.calls import Killed, transaction_canceled
from tests.simulated_cloud.tests.sample import Sample, collect, put

Event = dict[str, Any]


def test_every_third_call_is_throttled(sample: Sample) -> None:
    """An injected error has the client's own exception class, and the call has no effect."""
    rule = sample.fail("dynamodb", "PutItem", "ThrottlingException", every=3, times=None)
    failures = []
    for number in range(7):
        try:
            put(sample, str(number))
        except ClientError as error:
            failures.append((number, error.response["Error"]["Code"]))
    assert failures == [(2, "ThrottlingException"), (5, "ThrottlingException")]
    assert sample.table("Table").scan()["Count"] == 5
    assert rule.hits == 2


def test_a_rule_can_be_limited_to_a_function(sample: Sample) -> None:
    """A rule can be limited to one function and to calls for which a predicate is true."""
    sample.scripts["web"] = lambda event, context: put(sample, event["pk"])
    sample.fail(
        "dynamodb",
        "PutItem",
        ValueError("no"),
        function="sample_web",
        when=lambda call: call.params["Item"]["pk"] == "b",
        times=None,
    )
    put(sample, "b")
    assert sample.invoke("sample_web", {"pk": "a"}).error is None
    assert isinstance(sample.invoke("sample_web", {"pk": "b"}).error, ValueError)


def test_a_response_can_be_lost(sample: Sample) -> None:
    """With `after=True` the call takes effect and the caller gets an error."""
    with sample.fail("dynamodb", "PutItem", "InternalServerError", after=True), pytest.raises(ClientError):
        put(sample, "a")
    assert sample.table("Table").scan()["Count"] == 1


def test_a_fake_answers_an_operation_that_moto_lacks(sample: Sample) -> None:
    """Rules act on a faked operation as on every other call."""
    client = sample.client("bedrock-runtime")
    sample.fail("bedrock-runtime", "InvokeModel", "ThrottlingException")
    with pytest.raises(client.exceptions.ThrottlingException):
        client.invoke_model(modelId="model", body="{}")
    assert client.invoke_model(modelId="model", body="{}") == {"body": b"model"}


def test_transaction_conflicts(sample: Sample) -> None:
    """A cancelled transaction has the modelled exception class and a reason for each item."""
    sample.fail("dynamodb", "TransactWriteItems", transaction_canceled())
    client = sample.client("dynamodb")
    item = {"Put": {"TableName": "t", "Item": {"pk": {"S": "a"}, "sk": {"S": "1"}}}}
    with pytest.raises(client.exceptions.TransactionCanceledException) as caught:
        client.transact_write_items(TransactItems=[item, item])
    assert [r["Code"] for r in caught.value.response["CancellationReasons"]] == ["TransactionConflict"] * 2


def test_a_killed_function_gets_its_message_again(sample: Sample) -> None:
    """What it did before stays, its `except` and `finally` have no effect, and the message is delivered again."""

    def worker(event: Event, context: Any) -> Any:
        try:
            put(sample, "claimed")
            put(sample, "done")
        except Exception:
            put(sample, "caught")
        finally:
            if sample.functions.invocations[-1].killed_by:
                put(sample, "cleaned up")

    sample.scripts["worker"] = worker
    sample.kill("sample_worker", after=1)
    sample.queue("Queue").send("x")
    sample.settle()
    assert [item["pk"] for item in sample.table("Table").scan()["Items"]] == ["claimed"]
    assert (len(sample.queue("Queue")), sample.queue("Queue").visible) == (1, 0)
    sample.settle(within=181)
    assert {item["pk"] for item in sample.table("Table").scan()["Items"]} == {"claimed", "done"}
    assert len(sample.queue("Queue")) == 0


def test_a_function_can_be_killed_before_its_first_call(sample: Sample) -> None:
    """A function that is killed before its first call has no effect."""
    sample.scripts["web"] = lambda event, context: put(sample, "a")
    sample.kill("sample_web", after=0)
    assert isinstance(sample.invoke("sample_web", {}).error, Killed)
    assert sample.table("Table").scan()["Count"] == 0


def test_a_rule_can_run_code_just_before_a_call(sample: Sample) -> None:
    """Calls of that code do not count as calls of the function."""
    sample.scripts["web"] = lambda event, context: put(sample, "mine")
    sample.on("dynamodb", "PutItem", lambda call: put(sample, "theirs"), function="sample_web")
    sample.invoke("sample_web", {})
    assert [call.params["Item"]["pk"] for call in sample.calls.log] == ["mine", "theirs"]
    assert [call.function for call in sample.calls.log] == ["sample_web", None]


def test_rules_do_not_act_on_pollers(sample: Sample) -> None:
    """A rule for SQS acts on calls of functions and tests only."""
    seen: list[list[str]] = []
    sample.scripts["worker"] = collect(seen)
    sample.queue("Queue").send("a")
    sample.fail("sqs", "*", "InternalError", times=None)
    sample.settle()
    assert seen == [["a"]]
    assert len(sample.queue("Queue")) == 0


def test_calls_are_serialised(sample: Sample) -> None:
    """If several threads create the same item, one of them wins, and no increment of a counter is lost."""
    table = sample.table("Table")
    won: list[int] = []

    def create(number: int) -> None:
        try:
            table.put_item(Item={"pk": "a", "sk": "1"}, ConditionExpression="attribute_not_exists(pk)")
            won.append(number)
        except ClientError:
            pass
        table.update_item(
            Key={"pk": "n", "sk": "1"}, UpdateExpression="ADD n :one", ExpressionAttributeValues={":one": 1}
        )

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(create, range(40)))
    assert len(won) == 1
    assert table.get_item(Key={"pk": "n", "sk": "1"})["Item"]["n"] == 40


def test_calls_that_a_role_does_not_allow_are_found(sample: Sample) -> None:
    """The sample's role may only put items into its tables."""

    def web(event: Event, context: Any) -> Any:
        put(sample, "a")
        sample.table("Table").scan()
        sample.client("s3").list_objects_v2(Bucket=sample.bucket("Bucket"))

    sample.scripts["web"] = web
    sample.invoke("sample_web", {})
    table, bucket = sample.name("AWS::DynamoDB::Table", "Table"), sample.bucket("Bucket")
    assert sample.denied() == [
        f"sample_web: dynamodb:Scan on arn:aws:dynamodb:eu-west-1:123456789012:table/{table}",
        f"sample_web: s3:ListBucket on arn:aws:s3:::{bucket}",
    ]


def test_each_write_of_a_transaction_needs_its_own_permission(sample: Sample) -> None:
    """A Put needs PutItem, and an Update needs UpdateItem."""
    table = sample.name("AWS::DynamoDB::Table", "Table")
    key = {"pk": {"S": "a"}, "sk": {"S": "1"}}
    update = {
        "TableName": table,
        "Key": key,
        "UpdateExpression": "SET #n = pk",
        "ExpressionAttributeNames": {"#n": "n"},
    }
    put_item = {"TableName": table, "Item": {"pk": {"S": "b"}, "sk": {"S": "1"}}}
    sample.scripts["web"] = lambda event, context: sample.client("dynamodb").transact_write_items(
        TransactItems=[{"Put": put_item}, {"Update": update}]
    )
    sample.invoke("sample_web", {})
    assert [line.split(" on ")[0] for line in sample.denied()] == ["sample_web: dynamodb:UpdateItem"]


def test_calls_of_the_test_during_a_function_are_not_the_functions(sample: Sample) -> None:
    """Code of the test may use the cloud while a function waits for it."""

    def web(event: Event, context: Any) -> Any:
        sample.queue("Queue").send("from the other side")
        sample.settle()
        return dict(os.environ)["NAME"]

    sample.scripts["web"] = web
    assert sample.invoke("sample_web", {}).value == "web"
    assert sample.calls.of("sample_web") == []
    assert [call.action for call in sample.calls.log] == ["sqs:SendMessage"]
