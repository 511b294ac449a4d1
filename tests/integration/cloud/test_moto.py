"""What the cloud replaces in moto is still there to be replaced."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import pytest_socket
from botocore.exceptions import ClientError
from moto.dynamodb.models import dynamodb_backends

from tests.support import sample
from tests.support.cloud import Cloud
from tests.support.functions import ACCOUNT, REGION
from tests.support.sample import put

Event = dict[str, Any]


def test_the_interpreter_is_patched_where_it_uses_threads(deployed: Cloud) -> None:
    """A new place in another version of moto would escape the virtual clock."""
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


def test_moto_is_the_version_that_was_looked_at() -> None:
    """The patches were written against this one; look at the others before moving on."""
    import moto

    assert moto.__version__ == "5.2.5"


def test_a_transaction_copies_no_table(it: sample.Sample) -> None:
    """moto would copy the table and its stream before each one, and put the copies in their place on failure."""
    put(it, "a")
    name = it.name("AWS::DynamoDB::Table", "Table")
    table = dynamodb_backends[ACCOUNT][REGION].tables[name]
    check = {
        "TableName": name,
        "Key": {"pk": {"S": "none"}, "sk": {"S": "1"}},
        "ConditionExpression": "attribute_exists(pk)",
    }
    with pytest.raises(ClientError, match="TransactionCanceled"):
        it.client("dynamodb").transact_write_items(TransactItems=[{"ConditionCheck": check}])
    assert dynamodb_backends[ACCOUNT][REGION].tables[name] is table
    assert table.stream_shard is not None
    assert len(table.stream_shard.items) == 1


def test_a_write_that_changes_nothing_leaves_no_record(it: sample.Sample) -> None:
    """As in DynamoDB; moto would write one for each."""
    put(it, "a", n=1)
    put(it, "a", n=1)
    update = {
        "Key": {"pk": "a", "sk": "1"},
        "UpdateExpression": "SET n = :n",
        "ExpressionAttributeValues": {":n": 1},
    }
    it.table("Table").update_item(**update)
    assert [record["eventName"] for record in records(it)] == ["INSERT"]


def test_an_update_that_makes_an_item_leaves_one_record(it: sample.Sample) -> None:
    """With the whole item; moto would write another before it, with the key alone."""
    for _ in range(2):
        it.table("Table").update_item(
            Key={"pk": "a", "sk": "1"}, UpdateExpression="ADD n :n", ExpressionAttributeValues={":n": 1}
        )
    first, second = records(it)
    assert (first["eventName"], first["dynamodb"]["NewImage"]["n"]) == ("INSERT", {"N": "1"})
    assert (second["eventName"], second["dynamodb"]["NewImage"]["n"]) == ("MODIFY", {"N": "2"})
    numbers = [int(record["dynamodb"]["SequenceNumber"]) for record in (first, second)]
    assert numbers[0] < numbers[1]


def records(it: sample.Sample) -> list[Event]:
    shard = dynamodb_backends[ACCOUNT][REGION].tables[it.name("AWS::DynamoDB::Table", "Table")].stream_shard
    assert shard is not None
    return [item.record for item in shard.items]


def test_messages_are_kept_for_the_retention_period(it: sample.Sample) -> None:
    """Four days by default; the faster check says the same as moto's."""
    it.queue("Dead").send("x")
    it.clock.advance(4 * 86400 - 10)
    receive = {"QueueUrl": it.queue("Dead").url, "VisibilityTimeout": 1}
    assert len(it.client("sqs").receive_message(**receive)["Messages"]) == 1
    it.clock.advance(11)
    assert "Messages" not in it.client("sqs").receive_message(**receive)


def test_no_socket_can_be_opened() -> None:
    """Whatever a test does by mistake stays on this machine."""
    with pytest.raises((pytest_socket.SocketBlockedError, UserWarning)):
        socket.create_connection(("192.0.2.1", 80), timeout=1)


@pytest.mark.enable_socket
def test_loopback_can_be_opened_on_request() -> None:
    """With the marker `enable_socket`, and nothing beyond it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=1).close()
    with pytest.raises((pytest_socket.SocketConnectBlockedError, UserWarning)):
        socket.create_connection(("192.0.2.1", 80), timeout=1)


def test_parts_belong_to_one_key(it: sample.Sample) -> None:
    """Under another key, after they were dropped, or under an id that was made up there is no such upload."""
    s3, bucket = it.client("s3"), it.bucket("Bucket")
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
