"""Lambda's poller for DynamoDB streams, and what transactions leave in them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.support import sample
from tests.support.sample import names, put, raising

Event = dict[str, Any]


def changes(event: Event) -> list[str]:
    """What happened to which partition key, for a batch of records."""
    kinds = [record["eventName"] for record in event["Records"]]
    return [f"{kind} {name}" for kind, name in zip(kinds, names(event), strict=True)]


def test_only_records_that_match_the_filter_come_in_order(it: sample.Sample) -> None:
    """INSERT of an event; neither other items nor later changes."""
    seen: list[str] = []
    it.scripts["reader"] = lambda event, context: seen.extend(names(event))
    for number in range(6):
        put(it, str(number), entity="event")
        put(it, f"other-{number}", entity="job")
        put(it, str(number), entity="event", changed=True)
    it.settle()
    assert seen == [str(number) for number in range(6)]


def test_a_record_looks_as_lambda_sends_it(it: sample.Sample) -> None:
    """Bytes in base64, numbers as strings, the time in seconds, the project's region."""
    seen: list[Event] = []
    it.scripts["reader"] = lambda event, context: seen.extend(event["Records"])
    put(it, "a", entity="event", body=b"\x00\xff", n=7)
    it.settle()
    image = seen[0]["dynamodb"]["NewImage"]
    assert (image["body"]["B"], image["n"]["N"]) == (base64.b64encode(b"\x00\xff").decode(), "7")
    assert seen[0]["dynamodb"]["ApproximateCreationDateTime"] == pytest.approx(it.clock.time, abs=1)
    assert (seen[0]["eventName"], seen[0]["awsRegion"]) == ("INSERT", "eu-west-1")


def test_everything_from_the_first_failure_is_retried(it: sample.Sample) -> None:
    """The lowest sequence number reported counts, and what came after it comes again."""
    batches: list[list[str]] = []

    def reader(event: Event, context: Any) -> Any:
        batches.append(names(event))
        failed = [
            r["dynamodb"]["SequenceNumber"]
            for r in event["Records"]
            if r["dynamodb"]["Keys"]["pk"]["S"] in ("1", "3") and len(batches) == 1
        ]
        return {"batchItemFailures": [{"itemIdentifier": number} for number in reversed(failed)]}

    it.scripts["reader"] = reader
    for number in range(4):
        put(it, str(number), entity="event")
    it.settle(within=10)
    assert batches[0] == ["0", "1", "2", "3"]
    assert [name for batch in batches[1:] for name in batch] == ["1", "2", "3"]


def test_a_poison_record_is_cornered_and_parked(it: sample.Sample) -> None:
    """Halved until it is alone, tried as often as allowed, then written to the bucket with its payload."""
    seen: list[list[str]] = []

    def reader(event: Event, context: Any) -> Any:
        seen.append(names(event))
        if "2" in seen[-1]:
            raise RuntimeError

    it.scripts["reader"] = reader
    for number in range(6):
        put(it, str(number), entity="event")
    it.settle(within=60)
    assert seen == [["0", "1", "2", "3"], ["0", "1"], ["2", "3"], ["2"], ["2"], ["2"], ["3"], ["4", "5"]]
    (parked,) = it.client("s3").list_objects_v2(Bucket=it.bucket("Bucket"))["Contents"]
    body = json.load(it.client("s3").get_object(Bucket=it.bucket("Bucket"), Key=parked["Key"])["Body"])
    assert parked["Key"].startswith("aws/lambda/")
    assert body["requestContext"]["condition"] == "RetryAttemptsExhausted"
    assert body["DDBStreamBatchInfo"]["batchSize"] == 1
    (record,) = json.loads(body["payload"])["Records"]
    assert record["dynamodb"]["Keys"]["pk"]["S"] == "2"


def test_a_cancelled_transaction_leaves_no_trace(it: sample.Sample) -> None:
    """Neither items nor stream records: every item is put back, and new ones go."""
    put(it, "old", entity="event", n=1)
    table = it.name("AWS::DynamoDB::Table", "Table")
    item = {"pk": {"S": "new"}, "sk": {"S": "1"}, "entity": {"S": "event"}}
    update = {
        "TableName": table,
        "Key": {"pk": {"S": "old"}, "sk": {"S": "1"}},
        "UpdateExpression": "SET n = :n",
        "ExpressionAttributeValues": {":n": {"N": "2"}},
    }
    check = {
        "TableName": table,
        "Key": {"pk": {"S": "none"}, "sk": {"S": "1"}},
        "ConditionExpression": "attribute_exists(pk)",
    }
    with pytest.raises(ClientError) as caught:
        it.client("dynamodb").transact_write_items(
            TransactItems=[
                {"Put": {"TableName": table, "Item": item}},
                {"Update": update},
                {"ConditionCheck": check},
            ]
        )
    codes = [reason["Code"] for reason in caught.value.response["CancellationReasons"]]
    assert codes == ["None", "None", "ConditionalCheckFailed"]
    assert [i["n"] for i in it.table("Table").scan()["Items"]] == [1]
    seen: list[str] = []
    it.scripts["reader"] = lambda event, context: seen.extend(names(event))
    it.settle()
    assert seen == ["old"]


def test_a_transaction_with_the_same_token_is_done_once(it: sample.Sample) -> None:
    """ClientRequestToken; other parameters under it are refused."""
    table = it.name("AWS::DynamoDB::Table", "Table")

    def add(amount: str) -> None:
        update = {
            "TableName": table,
            "Key": {"pk": {"S": "a"}, "sk": {"S": "1"}},
            "UpdateExpression": "ADD n :n",
            "ExpressionAttributeValues": {":n": {"N": amount}},
        }
        it.client("dynamodb").transact_write_items(TransactItems=[{"Update": update}], ClientRequestToken="same")

    add("1")
    add("1")
    assert it.table("Table").scan()["Items"][0]["n"] == 1
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        add("2")


def test_expired_items_can_be_removed(it: sample.Sample) -> None:
    """When a test says so, and the stream tells that it was DynamoDB itself."""
    put(it, "old", expires_at=int(it.clock.time) + 10)
    put(it, "new", expires_at=int(it.clock.time) + 100)
    it.advance(50)
    assert it.expire("Table") == 1
    assert [item["pk"] for item in it.table("Table").scan()["Items"]] == ["new"]


def test_a_record_that_is_too_old_is_parked(it: sample.Sample) -> None:
    """After the mapping's maximum age, whatever retries are left."""
    it.scripts["reader"] = raising
    mapping = next(one for one in it.mappings if one.name == "sample_reader")
    it.pause("sample_reader")
    put(it, "a", entity="event")
    it.poll("sample_reader")
    it.clock.advance(3601)
    it.poll("sample_reader")
    assert len(it.functions.invocations) == 1
    (parked,) = it.client("s3").list_objects_v2(Bucket=it.bucket("Bucket"))["Contents"]
    body = json.load(it.client("s3").get_object(Bucket=it.bucket("Bucket"), Key=parked["Key"])["Body"])
    assert body["requestContext"]["condition"] == "MaximumRecordAgeExceeded"
    assert mapping.next_due() is None


def test_a_malformed_answer_fails_the_batch_of_a_stream(it: sample.Sample) -> None:
    """As with queues: it comes again, halved."""
    seen: list[list[str]] = []

    def reader(event: Event, context: Any) -> Any:
        seen.append(names(event))
        return {"batchItemFailures": [{"itemIdentifier": "unknown"}]} if len(seen) == 1 else None

    it.scripts["reader"] = reader
    for number in range(4):
        put(it, str(number), entity="event")
    it.settle()
    assert seen == [["0", "1", "2", "3"], ["0", "1"], ["2", "3"]]


def test_a_failing_stream_is_tried_again_later(it: sample.Sample) -> None:
    """One and then two seconds, not at once."""
    times: list[float] = []

    def reader(event: Event, context: Any) -> Any:
        times.append(it.clock.time)
        raise RuntimeError

    it.scripts["reader"] = reader
    put(it, "a", entity="event")
    it.settle()
    assert len(times) == 1
    it.settle(within=60)
    assert [round(when - times[0]) for when in times] == [0, 1, 3]


def test_two_functions_read_one_stream(it: sample.Sample) -> None:
    """Each its own way through it, with its own filters, any of which is enough."""
    seen: dict[str, list[str]] = {"reader": [], "mirror": []}
    it.scripts["reader"] = lambda event, context: seen["reader"].extend(changes(event))
    it.scripts["mirror"] = lambda event, context: seen["mirror"].extend(changes(event))
    it.pause("sample_mirror")
    put(it, "both", entity="event", shared=True)
    put(it, "one", entity="event")
    put(it, "one", entity="event", seen=False)
    put(it, "one", entity="event", seen=True)
    it.settle()
    assert seen == {"reader": ["INSERT both", "INSERT one"], "mirror": []}
    it.resume()
    it.settle()
    assert seen["mirror"] == ["INSERT both", "MODIFY one"]


def test_one_reader_that_fails_does_not_hold_up_the_other(it: sample.Sample) -> None:
    """It is tried again on its own."""
    seen: list[str] = []
    it.scripts["mirror"] = raising
    it.scripts["reader"] = lambda event, context: seen.extend(names(event))
    put(it, "a", entity="event", shared=True)
    put(it, "b", entity="event")
    it.settle()
    assert seen == ["a", "b"]
    it.scripts["mirror"] = lambda event, context: seen.extend(names(event))
    it.settle(within=10)
    assert seen == ["a", "b", "a"]


def test_what_a_reader_writes_into_its_own_table_comes_to_it_later(it: sample.Sample) -> None:
    """In another batch, where its filter lets it through; it ends with what the filter does not."""
    batches: list[list[str]] = []

    def mirror(event: Event, context: Any) -> None:
        batches.append(changes(event))
        for key in names(event):
            put(it, key, entity="event", shared=True, seen=len(batches) > 1)

    it.scripts["mirror"] = mirror
    put(it, "a", entity="event", shared=True)
    put(it, "b", entity="event", shared=True)
    it.settle()
    assert batches == [["INSERT a", "INSERT b"], ["MODIFY a", "MODIFY b"]]
    assert [item["seen"] for item in it.table("Table").scan()["Items"]] == [True, True]
