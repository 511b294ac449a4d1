"""Event source mappings of DynamoDB streams, and the stream records of transactions."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.simulated_cloud.tests.sample import Sample, names, put, raising

Event = dict[str, Any]


def changes(event: Event) -> list[str]:
    """What happened to which partition key, for a batch of records."""
    kinds = [record["eventName"] for record in event["Records"]]
    return [f"{kind} {name}" for kind, name in zip(kinds, names(event), strict=True)]


def test_only_records_that_match_the_filter_are_delivered_in_order(sample: Sample) -> None:
    """Records of other items and of later changes are skipped."""
    seen: list[str] = []
    sample.scripts["reader"] = lambda event, context: seen.extend(names(event))
    for number in range(6):
        put(sample, str(number), entity="event")
        put(sample, f"other-{number}", entity="other")
        put(sample, str(number), entity="event", changed=True)
    sample.settle()
    assert seen == [str(number) for number in range(6)]


def test_a_record_has_the_form_that_lambda_sends(sample: Sample) -> None:
    """Bytes are in base64, numbers are strings and times are in seconds."""
    seen: list[Event] = []
    sample.scripts["reader"] = lambda event, context: seen.extend(event["Records"])
    put(sample, "a", entity="event", body=b"\x00\xff", n=7)
    sample.settle()
    image = seen[0]["dynamodb"]["NewImage"]
    assert (image["body"]["B"], image["n"]["N"]) == (base64.b64encode(b"\x00\xff").decode(), "7")
    assert seen[0]["dynamodb"]["ApproximateCreationDateTime"] == pytest.approx(sample.clock.time, abs=1)
    assert (seen[0]["eventName"], seen[0]["awsRegion"]) == ("INSERT", "eu-west-1")


def test_everything_from_the_first_failure_is_retried(sample: Sample) -> None:
    """The retry starts at the lowest sequence number that is reported as failed."""
    batches: list[list[str]] = []

    def reader(event: Event, context: Any) -> Any:
        batches.append(names(event))
        failed = [
            r["dynamodb"]["SequenceNumber"]
            for r in event["Records"]
            if r["dynamodb"]["Keys"]["pk"]["S"] in ("1", "3") and len(batches) == 1
        ]
        return {"batchItemFailures": [{"itemIdentifier": number} for number in reversed(failed)]}

    sample.scripts["reader"] = reader
    for number in range(4):
        put(sample, str(number), entity="event")
    sample.settle(within=10)
    assert batches[0] == ["0", "1", "2", "3"]
    assert [name for batch in batches[1:] for name in batch] == ["1", "2", "3"]


def test_a_record_that_always_fails_is_isolated_and_sent_to_the_destination(sample: Sample) -> None:
    """The batch is halved until the record is alone, then retried, then written to the bucket with its payload."""
    seen: list[list[str]] = []

    def reader(event: Event, context: Any) -> Any:
        seen.append(names(event))
        if "2" in seen[-1]:
            raise RuntimeError

    sample.scripts["reader"] = reader
    for number in range(6):
        put(sample, str(number), entity="event")
    sample.settle(within=60)
    assert seen == [["0", "1", "2", "3"], ["0", "1"], ["2", "3"], ["2"], ["2"], ["2"], ["3"], ["4", "5"]]
    (parked,) = sample.client("s3").list_objects_v2(Bucket=sample.bucket("Bucket"))["Contents"]
    body = json.load(sample.client("s3").get_object(Bucket=sample.bucket("Bucket"), Key=parked["Key"])["Body"])
    assert parked["Key"].startswith("aws/lambda/")
    assert body["requestContext"]["condition"] == "RetryAttemptsExhausted"
    assert body["DDBStreamBatchInfo"]["batchSize"] == 1
    (record,) = json.loads(body["payload"])["Records"]
    assert record["dynamodb"]["Keys"]["pk"]["S"] == "2"


def test_a_cancelled_transaction_has_no_effect(sample: Sample) -> None:
    """Neither an item nor a stream record is left of it."""
    put(sample, "old", entity="event", n=1)
    table = sample.name("AWS::DynamoDB::Table", "Table")
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
        sample.client("dynamodb").transact_write_items(
            TransactItems=[
                {"Put": {"TableName": table, "Item": item}},
                {"Update": update},
                {"ConditionCheck": check},
            ]
        )
    codes = [reason["Code"] for reason in caught.value.response["CancellationReasons"]]
    assert codes == ["None", "None", "ConditionalCheckFailed"]
    assert [i["n"] for i in sample.table("Table").scan()["Items"]] == [1]
    seen: list[str] = []
    sample.scripts["reader"] = lambda event, context: seen.extend(names(event))
    sample.settle()
    assert seen == ["old"]


def test_a_transaction_with_the_same_token_is_done_once(sample: Sample) -> None:
    """Other parameters with the same ClientRequestToken are refused."""
    table = sample.name("AWS::DynamoDB::Table", "Table")

    def add(amount: str) -> None:
        update = {
            "TableName": table,
            "Key": {"pk": {"S": "a"}, "sk": {"S": "1"}},
            "UpdateExpression": "ADD n :n",
            "ExpressionAttributeValues": {":n": {"N": amount}},
        }
        sample.client("dynamodb").transact_write_items(
            TransactItems=[{"Update": update}], ClientRequestToken="same"
        )

    add("1")
    add("1")
    assert sample.table("Table").scan()["Items"][0]["n"] == 1
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        add("2")


def test_a_record_that_is_too_old_is_sent_to_the_destination(sample: Sample) -> None:
    """It is discarded after MaximumRecordAgeInSeconds, even if retries are left."""
    sample.scripts["reader"] = raising
    mapping = next(one for one in sample.mappings if one.name == "sample_reader")
    sample.pause("sample_reader")
    put(sample, "a", entity="event")
    sample.poll("sample_reader")
    sample.clock.advance(3601)
    sample.poll("sample_reader")
    assert len(sample.functions.invocations) == 1
    (parked,) = sample.client("s3").list_objects_v2(Bucket=sample.bucket("Bucket"))["Contents"]
    body = json.load(sample.client("s3").get_object(Bucket=sample.bucket("Bucket"), Key=parked["Key"])["Body"])
    assert body["requestContext"]["condition"] == "MaximumRecordAgeExceeded"
    assert mapping.next_due() is None


def test_a_malformed_response_fails_the_batch_of_a_stream(sample: Sample) -> None:
    """The batch is retried in halves."""
    seen: list[list[str]] = []

    def reader(event: Event, context: Any) -> Any:
        seen.append(names(event))
        return {"batchItemFailures": [{"itemIdentifier": "unknown"}]} if len(seen) == 1 else None

    sample.scripts["reader"] = reader
    for number in range(4):
        put(sample, str(number), entity="event")
    sample.settle()
    assert seen == [["0", "1", "2", "3"], ["0", "1"], ["2", "3"]]


def test_a_failed_batch_is_retried_with_backoff(sample: Sample) -> None:
    """The retries come after one and two seconds."""
    times: list[float] = []

    def reader(event: Event, context: Any) -> Any:
        times.append(sample.clock.time)
        raise RuntimeError

    sample.scripts["reader"] = reader
    put(sample, "a", entity="event")
    sample.settle()
    assert len(times) == 1
    sample.settle(within=60)
    assert [round(when - times[0]) for when in times] == [0, 1, 3]


def test_two_functions_read_one_stream(sample: Sample) -> None:
    """Each mapping has its own position and filters; a record must match one of the filters."""
    seen: dict[str, list[str]] = {"reader": [], "mirror": []}
    sample.scripts["reader"] = lambda event, context: seen["reader"].extend(changes(event))
    sample.scripts["mirror"] = lambda event, context: seen["mirror"].extend(changes(event))
    sample.pause("sample_mirror")
    put(sample, "both", entity="event", shared=True)
    put(sample, "one", entity="event")
    put(sample, "one", entity="event", seen=False)
    put(sample, "one", entity="event", seen=True)
    sample.settle()
    assert seen == {"reader": ["INSERT both", "INSERT one"], "mirror": []}
    sample.resume()
    sample.settle()
    assert seen["mirror"] == ["INSERT both", "MODIFY one"]


def test_a_mapping_that_fails_does_not_block_another(sample: Sample) -> None:
    """Each mapping is retried on its own."""
    seen: list[str] = []
    sample.scripts["mirror"] = raising
    sample.scripts["reader"] = lambda event, context: seen.extend(names(event))
    put(sample, "a", entity="event", shared=True)
    put(sample, "b", entity="event")
    sample.settle()
    assert seen == ["a", "b"]
    sample.scripts["mirror"] = lambda event, context: seen.extend(names(event))
    sample.settle(within=10)
    assert seen == ["a", "b", "a"]


def test_a_function_may_write_to_the_table_whose_stream_it_reads(sample: Sample) -> None:
    """It gets its own changes in a later batch if they match its filter."""
    batches: list[list[str]] = []

    def mirror(event: Event, context: Any) -> None:
        batches.append(changes(event))
        for key in names(event):
            put(sample, key, entity="event", shared=True, seen=len(batches) > 1)

    sample.scripts["mirror"] = mirror
    put(sample, "a", entity="event", shared=True)
    put(sample, "b", entity="event", shared=True)
    sample.settle()
    assert batches == [["INSERT a", "INSERT b"], ["MODIFY a", "MODIFY b"]]
    assert [item["seen"] for item in sample.table("Table").scan()["Items"]] == [True, True]
