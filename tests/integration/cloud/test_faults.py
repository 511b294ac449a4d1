"""Faults, crashes and interleavings, where a test wants them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.support import sample
from tests.support.calls import Killed, transaction_canceled
from tests.support.sample import collect, put

Event = dict[str, Any]


def test_every_third_call_is_throttled(it: sample.Sample) -> None:
    """With the client's own exception class for the code, and without the call taking effect."""
    rule = it.fail("dynamodb", "PutItem", "ThrottlingException", every=3, times=None)
    failures = []
    for number in range(7):
        try:
            put(it, str(number))
        except ClientError as error:
            failures.append((number, error.response["Error"]["Code"]))
    assert failures == [(2, "ThrottlingException"), (5, "ThrottlingException")]
    assert it.table("Table").scan()["Count"] == 5
    assert rule.hits == 2


def test_a_rule_can_be_limited_to_a_function(it: sample.Sample) -> None:
    """And to calls that a predicate picks."""
    it.scripts["web"] = lambda event, context: put(it, event["pk"])
    it.fail(
        "dynamodb",
        "PutItem",
        ValueError("no"),
        function="sample_web",
        when=lambda call: call.params["Item"]["pk"] == "b",
        times=None,
    )
    put(it, "b")
    assert it.invoke("sample_web", {"pk": "a"}).error is None
    assert isinstance(it.invoke("sample_web", {"pk": "b"}).error, ValueError)


def test_an_answer_can_get_lost(it: sample.Sample) -> None:
    """The call took effect, and its caller gets an error."""
    with it.fail("dynamodb", "PutItem", "InternalServerError", after=True), pytest.raises(ClientError):
        put(it, "a")
    assert it.table("Table").scan()["Count"] == 1


def test_transaction_conflicts(it: sample.Sample) -> None:
    """One reason an item, of the modelled exception class."""
    it.fail("dynamodb", "TransactWriteItems", transaction_canceled())
    client = it.client("dynamodb")
    item = {"Put": {"TableName": "t", "Item": {"pk": {"S": "a"}, "sk": {"S": "1"}}}}
    with pytest.raises(client.exceptions.TransactionCanceledException) as caught:
        client.transact_write_items(TransactItems=[item, item])
    assert [r["Code"] for r in caught.value.response["CancellationReasons"]] == ["TransactionConflict"] * 2


def test_a_killed_function_leaves_its_message_to_the_next(it: sample.Sample) -> None:
    """What it did before stays; `finally` changes nothing any more; the message comes again."""

    def worker(event: Event, context: Any) -> Any:
        try:
            put(it, "claimed")
            put(it, "done")
        except Exception:
            put(it, "caught")
        finally:
            if it.functions.invocations[-1].fate:
                put(it, "cleaned up")

    it.scripts["worker"] = worker
    it.kill("sample_worker", after=1)
    it.queue("Queue").send("x")
    it.settle()
    assert [item["pk"] for item in it.table("Table").scan()["Items"]] == ["claimed"]
    assert (len(it.queue("Queue")), it.queue("Queue").visible) == (1, 0)
    it.settle(within=181)
    assert {item["pk"] for item in it.table("Table").scan()["Items"]} == {"claimed", "done"}
    assert len(it.queue("Queue")) == 0


def test_a_function_can_be_killed_before_its_first_call(it: sample.Sample) -> None:
    """Nothing happened at all."""
    it.scripts["web"] = lambda event, context: put(it, "a")
    it.kill("sample_web", after=0)
    assert isinstance(it.invoke("sample_web", {}).error, Killed)
    assert it.table("Table").scan()["Count"] == 0


def test_another_actor_can_come_in_between(it: sample.Sample) -> None:
    """Just before a call, with calls that are not the function's."""
    it.scripts["web"] = lambda event, context: put(it, "mine")
    it.on("dynamodb", "PutItem", lambda call: put(it, "theirs"), function="sample_web")
    it.invoke("sample_web", {})
    assert [call.params["Item"]["pk"] for call in it.calls.log] == ["mine", "theirs"]
    assert [call.function for call in it.calls.log] == ["sample_web", None]


def test_pollers_meet_no_faults(it: sample.Sample) -> None:
    """A rule for SQS is about the project's calls."""
    seen: list[list[str]] = []
    it.scripts["worker"] = collect(seen)
    it.queue("Queue").send("a")
    it.fail("sqs", "*", "InternalError", times=None)
    it.settle()
    assert seen == [["a"]]
    assert len(it.queue("Queue")) == 0


def test_calls_are_serialised(it: sample.Sample) -> None:
    """Of ten threads that create the same item, one wins; counts add up."""
    table = it.table("Table")
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


def test_calls_that_a_role_does_not_allow_are_found(it: sample.Sample) -> None:
    """The sample's role may put items into its tables, and nothing else."""

    def web(event: Event, context: Any) -> Any:
        put(it, "a")
        it.table("Table").scan()
        it.client("s3").list_objects_v2(Bucket=it.bucket("Bucket"))

    it.scripts["web"] = web
    it.invoke("sample_web", {})
    table, bucket = it.name("AWS::DynamoDB::Table", "Table"), it.bucket("Bucket")
    assert it.denied() == [
        f"sample_web: dynamodb:Scan on arn:aws:dynamodb:eu-west-1:123456789012:table/{table}",
        f"sample_web: s3:ListBucket on arn:aws:s3:::{bucket}",
    ]


def test_each_write_of_a_transaction_needs_its_own_permission(it: sample.Sample) -> None:
    """A Put needs PutItem, an Update UpdateItem."""
    table = it.name("AWS::DynamoDB::Table", "Table")
    key = {"pk": {"S": "a"}, "sk": {"S": "1"}}
    update = {
        "TableName": table,
        "Key": key,
        "UpdateExpression": "SET #n = pk",
        "ExpressionAttributeNames": {"#n": "n"},
    }
    put_item = {"TableName": table, "Item": {"pk": {"S": "b"}, "sk": {"S": "1"}}}
    it.scripts["web"] = lambda event, context: it.client("dynamodb").transact_write_items(
        TransactItems=[{"Put": put_item}, {"Update": update}]
    )
    it.invoke("sample_web", {})
    assert [line.split(" on ")[0] for line in it.denied()] == ["sample_web: dynamodb:UpdateItem"]


def test_what_a_test_does_within_a_function_is_not_the_functions(it: sample.Sample) -> None:
    """A fake counterpart may use the cloud while the function waits for it."""

    def web(event: Event, context: Any) -> Any:
        it.queue("Queue").send("from the other side")
        it.settle()
        return dict(os.environ)["NAME"]

    it.scripts["web"] = web
    assert it.invoke("sample_web", {}).value == "web"
    assert it.calls.of("sample_web") == []
    assert [call.action for call in it.calls.log] == ["sqs:SendMessage"]
