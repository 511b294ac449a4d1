"""Publishing events to SNS (jobs.publisher)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from boto3.dynamodb.types import TypeSerializer
from botocore.exceptions import ReadTimeoutError

from core import events
from core.aws.blobs import Blobs
from core.webhooks.endpoints.owner_log import OwnerLog
from jobs.publisher.handler import handler
from tests.simulated_cloud.calls import Calls
from tests.simulated_cloud.clock import Clock
from tests.unit.examples import DAY

BODY = events.encode({"event": "document.indexed", "text": "año \u2028 👩‍🚀", "score": 0.1})


def record(number: int, name: str = "document.chunked") -> dict[str, Any]:
    """The stream record of an event of a job."""
    item = {
        "pk": f"JOB#job_{number}",
        "sk": "EVENT#000001",
        "entity": "event",
        "event_id": f"evt_{number}",
        "name": name,
        "job_id": f"job_{number}",
        "kind": "document",
        "owner": "ana",
        "sequence": 1,
        "status": "running",
        "lifecycle": "progress",
        "timestamp": "2026-11-29T14:33:00.123Z",
        "expires_at": 1,
        "body": BODY,
    }
    return streamed(number, item)


def streamed(number: int, item: dict[str, Any]) -> dict[str, Any]:
    """A stream record as Lambda receives it, with the new image in DynamoDB's JSON."""
    image = {key: TypeSerializer().serialize(value) for key, value in item.items()}
    return {"eventName": "INSERT", "dynamodb": {"SequenceNumber": str(1000 + number), "NewImage": image}}


@pytest.fixture
def calls(environment: dict[str, str], topics: None, bucket: str, jobs_table: str) -> Any:
    """Records every call to AWS."""
    calls = Calls(Clock())
    with calls.intercepted():
        yield calls


def publish(*records: dict[str, Any]) -> list[str]:
    """The sequence numbers that the function reports as failed."""
    answer = handler({"Records": list(records)}, None)
    return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


def published(calls: Calls) -> list[tuple[str, str]]:
    sent = [call.params for call in calls.log if call.operation == "Publish"]
    return [
        (params["TopicArn"].rpartition(":")[2], params["MessageAttributes"]["event_type"]["StringValue"])
        for params in sent
    ]


def test_message(calls: Calls, environment: dict[str, str]) -> None:
    """An event is published with its stored bytes, the filter attributes, and its owner as the group."""
    assert publish(record(1)) == []
    (call,) = (call for call in calls.log if call.operation == "Publish")
    assert call.params == {
        "TopicArn": environment["EVENTS_TOPIC"],
        "Message": BODY,
        "MessageAttributes": {
            "event_type": {"DataType": "String", "StringValue": "document.chunked"},
            "kind": {"DataType": "String", "StringValue": "document"},
            "owner": {"DataType": "String", "StringValue": "ana"},
            "lifecycle": {"DataType": "String", "StringValue": "progress"},
            "status": {"DataType": "String", "StringValue": "running"},
        },
        "MessageGroupId": "ana",
    }


def test_attributes_of_owner_events(dynamodb: Any, jobs_table: str, calls: Calls) -> None:
    """Events of owners have neither lifecycle nor status."""
    OwnerLog(dynamodb, jobs_table, retention_seconds=DAY).append("ana", "ping", endpoint_id="wh_1")
    (row,) = dynamodb.scan(TableName=jobs_table)["Items"]
    assert publish(streamed(1, row)) == []
    (call,) = (call for call in calls.log if call.operation == "Publish")
    attributes = {name: value["StringValue"] for name, value in call.params["MessageAttributes"].items()}
    assert attributes == {"event_type": "ping", "kind": "endpoint", "owner": "ana"}


@pytest.mark.parametrize(
    "error",
    ["ThrottlingException", "InternalError", "AuthorizationError", ReadTimeoutError(endpoint_url="https://sns")],
)
def test_transient_errors(calls: Calls, error: Any) -> None:
    """The batch stops at the first event that cannot be published now, and that event is reported."""
    calls.fail("sns", "Publish", error, every=2)
    assert publish(record(1), record(2), record(3)) == ["1002"]
    assert len(published(calls)) == 2
    assert publish(record(2), record(3)) == []


def test_error_of_second_topic(calls: Calls) -> None:
    """A failure that was published to only one of two topics is retried."""
    calls.fail("sns", "Publish", "ThrottlingException", every=2)
    assert publish(record(1, "document.failed"), record(2)) == ["1001"]
    assert publish(record(1, "document.failed"), record(2)) == []
    assert [topic for topic, _ in published(calls)] == ["events", "alerts"] * 2 + ["events"]


def test_parked_events(calls: Calls, blobs: Blobs, logged: Callable[[], list[dict[str, Any]]]) -> None:
    """An event that SNS refuses for good is stored with all that is needed to publish it later."""
    calls.fail("sns", "Publish", "InvalidParameter", every=2)
    assert publish(record(1), record(2), record(3)) == []
    assert json.loads(blobs.get("parked/evt_2.json")) == {
        "name": "document.chunked",
        "kind": "document",
        "owner": "ana",
        "event_id": "evt_2",
        "body": BODY,
        "status": "running",
        "lifecycle": "progress",
    }
    assert list(blobs.keys("parked/")) == ["parked/evt_2.json"]
    (line,) = (line for line in logged() if line["level"] == "ERROR")
    assert (line["event_id"], line["reason"]) == ("evt_2", "InvalidParameter")


def test_alert_for_parked_event(calls: Calls, blobs: Blobs) -> None:
    """An alert names the parked event. If it cannot be sent, the batch continues."""
    calls.fail("sns", "Publish", "InvalidParameter", every=2, times=2)
    assert publish(record(1), record(2)) == []
    assert published(calls)[-1] == ("alerts", "event.parked")
    (alert,) = (call.params for call in calls.log if call.params.get("TopicArn", "").endswith("alerts"))
    assert json.loads(alert["Message"]) == {
        "event": "event.parked",
        "event_id": "evt_2",
        "reason": "InvalidParameter",
    }
    calls.fail("sns", "Publish", "InvalidParameter")
    assert publish(record(3)) == []
    assert list(blobs.keys("parked/")) == ["parked/evt_2.json", "parked/evt_3.json"]


def test_deleted_jobs(calls: Calls, dynamodb: Any, jobs_table: str) -> None:
    """Events of deleted jobs are dropped, those before and after them are not."""
    tombstone = {"pk": "JOB#job_2", "sk": "META", "deleted_at": "2026-11-29T14:33:00.123Z"}
    dynamodb.put_item(TableName=jobs_table, Item=tombstone)
    assert publish(record(1), record(2, name="document.failed"), record(3)) == []
    assert published(calls) == [("events", "document.chunked")] * 2


def test_unread_jobs(calls: Calls) -> None:
    """If it cannot be read which jobs were deleted, nothing is published, and all is retried."""
    calls.fail("dynamodb", "BatchGetItem", "InternalServerError", times=None)
    assert publish(record(1), record(2)) == ["1001"]
    assert published(calls) == []
