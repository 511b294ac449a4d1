"""The corrections of moto, and what they depend on."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto.dynamodb.models import dynamodb_backends

from tests.simulated_cloud.cloud import Cloud
from tests.simulated_cloud.functions import ACCOUNT, REGION
from tests.simulated_cloud.tests.sample import Sample, put

Event = dict[str, Any]


def test_the_interpreter_is_patched_where_it_uses_threads(deployed: Cloud) -> None:
    """moto's interpreter uses threads and events in these places only; others would not use the virtual clock."""
    prefix = "moto.stepfunctions.parser."
    places = {
        f"{module.__name__.removeprefix(prefix).rsplit('.', 1)[-1]}.{attribute}"
        for module, attribute, _ in deployed.executions.replacements()
    }
    assert places == {
        "alias.threading",
        "branch_worker.threading",
        "branches_decl.threading",
        "callback.Event",
        "environment.threading",
        "event_manager.threading",
        "execute_state.Thread",
        "execute_state.threading",
        "execution_worker.Thread",
        "inline_iteration_component.threading",
        "job.threading",
        "map_run_record.threading",
        "program.threading",
        "state_task_service_callback.threading",
    }


def test_moto_has_the_version_that_the_corrections_were_written_for() -> None:
    """Check each correction before you change the version here."""
    import moto

    assert moto.__version__ == "5.2.5"


def test_a_transaction_copies_no_table(sample: Sample) -> None:
    """A failed transaction keeps the table object and its stream; moto would replace them by copies."""
    put(sample, "a")
    name = sample.name("AWS::DynamoDB::Table", "Table")
    table = dynamodb_backends[ACCOUNT][REGION].tables[name]
    check = {
        "TableName": name,
        "Key": {"pk": {"S": "none"}, "sk": {"S": "1"}},
        "ConditionExpression": "attribute_exists(pk)",
    }
    with pytest.raises(ClientError, match="TransactionCanceled"):
        sample.client("dynamodb").transact_write_items(TransactItems=[{"ConditionCheck": check}])
    assert dynamodb_backends[ACCOUNT][REGION].tables[name] is table
    assert table.stream_shard is not None
    assert len(table.stream_shard.items) == 1


def test_a_write_without_a_change_makes_no_stream_record(sample: Sample) -> None:
    """moto would write one."""
    put(sample, "a", n=1)
    put(sample, "a", n=1)
    update = {
        "Key": {"pk": "a", "sk": "1"},
        "UpdateExpression": "SET n = :n",
        "ExpressionAttributeValues": {":n": 1},
    }
    sample.table("Table").update_item(**update)
    assert [record["eventName"] for record in records(sample)] == ["INSERT"]


def test_an_update_that_creates_an_item_makes_one_stream_record(sample: Sample) -> None:
    """The record has the whole item; moto would write another before it, with the key alone."""
    for _ in range(2):
        sample.table("Table").update_item(
            Key={"pk": "a", "sk": "1"}, UpdateExpression="ADD n :n", ExpressionAttributeValues={":n": 1}
        )
    first, second = records(sample)
    assert (first["eventName"], first["dynamodb"]["NewImage"]["n"]) == ("INSERT", {"N": "1"})
    assert (second["eventName"], second["dynamodb"]["NewImage"]["n"]) == ("MODIFY", {"N": "2"})
    numbers = [int(record["dynamodb"]["SequenceNumber"]) for record in (first, second)]
    assert numbers[0] < numbers[1]


def records(sample: Sample) -> list[Event]:
    shard = dynamodb_backends[ACCOUNT][REGION].tables[sample.name("AWS::DynamoDB::Table", "Table")].stream_shard
    assert shard is not None
    return [item.record for item in shard.items]


def test_messages_are_kept_for_the_retention_period(sample: Sample) -> None:
    """The faster check of the retention period removes a message after four days, as moto's does."""
    sample.queue("Dead").send("x")
    sample.clock.advance(4 * 86400 - 10)
    receive = {"QueueUrl": sample.queue("Dead").url, "VisibilityTimeout": 1}
    assert len(sample.client("sqs").receive_message(**receive)["Messages"]) == 1
    sample.clock.advance(11)
    assert "Messages" not in sample.client("sqs").receive_message(**receive)


def test_a_multipart_upload_belongs_to_one_key(sample: Sample) -> None:
    """The upload id is unknown for another key, after completion, and if it was never issued."""
    s3, bucket = sample.client("s3"), sample.bucket("Bucket")
    upload_id = s3.create_multipart_upload(Bucket=bucket, Key="mine")["UploadId"]
    place = {"Bucket": bucket, "Key": "mine", "UploadId": upload_id}
    etag = s3.upload_part(**place, PartNumber=1, Body=b"x")["ETag"]
    joined = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    for other in ({"Key": "theirs"}, {"UploadId": "none"}):
        for act, options in (
            (s3.upload_part, {"PartNumber": 1}),
            (s3.complete_multipart_upload, {"MultipartUpload": joined}),
            (s3.abort_multipart_upload, {}),
        ):
            with pytest.raises(ClientError, match="NoSuchUpload"):
                act(**place | other, **options)
    s3.complete_multipart_upload(**place, MultipartUpload=joined)
    with pytest.raises(ClientError, match="NoSuchUpload"):
        s3.complete_multipart_upload(**place, MultipartUpload=joined)
