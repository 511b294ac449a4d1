"""Publishing events to SNS (jobs.publisher)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from boto3.dynamodb.types import TypeSerializer
from botocore.exceptions import ReadTimeoutError

from core import events
from core.aws.blobs import Blobs
from core.jobs import JobStore, Kind, begin, complete
from core.webhooks.endpoints.owner_log import OwnerLog
from jobs.publisher.handler import handler
from kinds.document.kind import DOCUMENT
from kinds.replay.kind import REPLAY
from tests.simulated_cloud.calls import Calls
from tests.simulated_cloud.clock import Clock
from tests.unit.examples import DAY, job, replay

BODY = events.encode({"event": "document.indexed", "text": "año \u2028 👩‍🚀", "score": 0.1})


def record(number: int, name: str = "document.chunked", body: str = BODY) -> dict[str, Any]:
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
        "body": body,
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


def attributes(calls: Calls) -> list[dict[str, str]]:
    sent = [call.params["MessageAttributes"] for call in calls.log if call.operation == "Publish"]
    return [{name: value["StringValue"] for name, value in each.items()} for each in sent]


def rows(dynamodb: Any, owner_or_job: str) -> list[dict[str, Any]]:
    """The events under this key."""
    query = {"KeyConditionExpression": "pk = :pk", "ExpressionAttributeValues": {":pk": owner_or_job}}
    found = dynamodb.query(TableName="jobs", **query)["Items"]
    return [row for row in found if row.get("entity") == "event"]


@pytest.mark.parametrize("kind", [DOCUMENT, REPLAY], ids=["document", "replay"])
def test_attributes_of_job_events(dynamodb: Any, jobs_table: str, calls: Calls, kind: Kind) -> None:
    """Events of jobs have lifecycle and status, as they were at the event."""
    store = JobStore(dynamodb, jobs_table)
    draft = job(at=time.time()) if kind is DOCUMENT else replay(at=time.time())
    job_id = store.submit(kind, draft).job.job_id
    store.apply(job_id, begin(kind, stage=kind.stages[0], lease="x"))
    store.apply(job_id, begin(kind, stage=kind.stages[0], lease="x"))
    store.apply(job_id, complete(kind, lease="x", result={}))
    assert publish(*(streamed(n, row) for n, row in enumerate(rows(dynamodb, f"JOB#{job_id}")))) == []
    expected = [
        (kind.submitted_event, "submitted", "queued"),
        (f"{kind.name}.started", "progress", "running"),
        (f"{kind.name}.retried", "progress", "running"),
        (f"{kind.name}.{kind.completed_verb}", "ended", "completed"),
    ]
    common = {"kind": kind.name, "owner": "ana"}
    assert attributes(calls) == [
        {"event_type": name, "lifecycle": lifecycle, "status": status} | common
        for name, lifecycle, status in expected
    ]


def test_attributes_of_owner_events(dynamodb: Any, jobs_table: str, calls: Calls) -> None:
    """Events of owners have neither lifecycle nor status."""
    log = OwnerLog(dynamodb, jobs_table, retention_seconds=DAY)
    log.append("ana", "ping", endpoint_id="wh_1")
    (row,) = rows(dynamodb, "OWNER#ana")
    assert publish(streamed(1, row)) == []
    assert attributes(calls) == [{"event_type": "ping", "kind": "endpoint", "owner": "ana"}]


@pytest.mark.parametrize("name", DOCUMENT.event_names)
def test_topics(calls: Calls, name: str) -> None:
    """Every event goes to the topic of events, and failures also to that of alerts."""
    publish(record(1, name))
    topics = ["events", "alerts"] if name == "document.failed" else ["events"]
    assert published(calls) == [(topic, name) for topic in topics]


def test_order(calls: Calls) -> None:
    """A batch is published in order."""
    names = ["document.uploaded", "document.started", "document.chunked"]
    assert publish(*(record(number, name) for number, name in enumerate(names))) == []
    assert [name for _, name in published(calls)] == names


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
    (alert,) = (call.params for call in calls.log if call.params.get("TopicArn", "").endswith("alerts"))
    assert json.loads(alert["Message"]) == {
        "event": "event.parked",
        "event_id": "evt_2",
        "reason": "InvalidParameter",
    }
    calls.fail("sns", "Publish", "InvalidParameter")
    assert publish(record(3)) == []
    assert list(blobs.keys("parked/")) == ["parked/evt_2.json", "parked/evt_3.json"]


def test_failed_parking(calls: Calls) -> None:
    """An event that can neither be published nor stored fails the batch."""
    calls.fail("sns", "Publish", "InvalidParameter")
    calls.fail("s3", "PutObject", "InternalError")
    with pytest.raises(Exception, match="InternalError"):
        publish(record(1))


def test_bodies_are_not_logged(calls: Calls, logged: Callable[[], list[dict[str, Any]]]) -> None:
    """Bodies of events are never logged."""
    for error in ("ThrottlingException", "InvalidParameter"):
        with calls.fail("sns", "Publish", error):
            publish(record(1, body='{"text":"secret words"}'))
    assert len(logged()) >= 2
    assert "secret" not in str(logged())


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
