from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from boto3.dynamodb.types import TypeSerializer
from botocore.exceptions import ReadTimeoutError

from core import events
from core.blobs import Blobs
from publisher.handler import handler
from tests.support.calls import Calls
from tests.support.clock import Clock

BODY = events.encode({"event": "document.indexed", "text": "año \u2028 👩‍🚀", "score": 0.1})


def record(number: int, name: str = "document.chunked", body: str = BODY) -> dict[str, Any]:
    """A stream record as Lambda hands it over: the new image in DynamoDB's own JSON."""
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
        "timestamp": "2026-11-29T14:33:00.123Z",
        "expires_at": 1,
        "body": body,
    }
    image = {key: TypeSerializer().serialize(value) for key, value in item.items()}
    return {"eventName": "INSERT", "dynamodb": {"SequenceNumber": str(1000 + number), "NewImage": image}}


@pytest.fixture
def calls(environment: dict[str, str], topics: None, bucket: str) -> Any:
    """Every call to AWS, recorded."""
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
    """An event is sent with the bytes that were stored, what filters read, and its owner as the group."""
    assert publish(record(1)) == []
    (call,) = (call for call in calls.log if call.operation == "Publish")
    assert call.params == {
        "TopicArn": environment["EVENTS_TOPIC"],
        "Message": BODY,
        "MessageAttributes": {
            "event_type": {"DataType": "String", "StringValue": "document.chunked"},
            "kind": {"DataType": "String", "StringValue": "document"},
            "owner": {"DataType": "String", "StringValue": "ana"},
        },
        "MessageGroupId": "ana",
    }


@pytest.mark.parametrize("name", events.names("document"))
def test_topics(calls: Calls, name: str) -> None:
    """Every event goes to the topic of events, and failures also to that of alerts."""
    publish(record(1, name))
    topics = ["events", "alerts"] if name == "document.failed" else ["events"]
    assert published(calls) == [(topic, name) for topic in topics]


def test_order(calls: Calls) -> None:
    """A batch is sent in its order."""
    names = ["document.uploaded", "document.started", "document.chunked"]
    assert publish(*(record(number, name) for number, name in enumerate(names))) == []
    assert [name for _, name in published(calls)] == names


@pytest.mark.parametrize(
    "trouble",
    ["ThrottlingException", "InternalError", "AuthorizationError", ReadTimeoutError(endpoint_url="https://sns")],
)
def test_passing_trouble(calls: Calls, trouble: Any) -> None:
    """At the first event that cannot be sent now the batch stops, and its number is the one reported."""
    calls.fail("sns", "Publish", trouble, every=2)
    assert publish(record(1), record(2), record(3)) == ["1002"]
    assert len(published(calls)) == 2
    assert publish(record(2), record(3)) == []


def test_trouble_with_the_second_topic(calls: Calls) -> None:
    """A failure that reached one topic of two counts as not sent: it comes twice rather than not at all."""
    calls.fail("sns", "Publish", "ThrottlingException", every=2)
    assert publish(record(1, "document.failed"), record(2)) == ["1001"]
    assert publish(record(1, "document.failed"), record(2)) == []
    assert [topic for topic, _ in published(calls)] == ["events", "alerts"] * 2 + ["events"]


def test_what_is_refused_for_good(calls: Calls, blobs: Blobs, logged: Callable[[], list[dict[str, Any]]]) -> None:
    """What SNS will never take is put aside with all that it takes to send it later, and blocks nothing."""
    calls.fail("sns", "Publish", "InvalidParameter", every=2)
    assert publish(record(1), record(2), record(3)) == []
    assert json.loads(blobs.get("parked/evt_2.json")) == {
        "name": "document.chunked",
        "kind": "document",
        "owner": "ana",
        "event_id": "evt_2",
        "body": BODY,
    }
    assert list(blobs.keys("parked/")) == ["parked/evt_2.json"]
    (line,) = (line for line in logged() if line["level"] == "ERROR")
    assert (line["event_id"], line["reason"]) == ("evt_2", "InvalidParameter")


def test_operators_hear_of_what_is_parked(calls: Calls, blobs: Blobs) -> None:
    """An alert names the event that was put aside; one that cannot be sent either holds nothing up."""
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


def test_parking_that_fails(calls: Calls) -> None:
    """An event that can be neither sent nor put aside fails the batch: it is not lost."""
    calls.fail("sns", "Publish", "InvalidParameter")
    calls.fail("s3", "PutObject", "InternalError")
    with pytest.raises(Exception, match="InternalError"):
        publish(record(1))


def test_bodies_are_not_logged(calls: Calls, logged: Callable[[], list[dict[str, Any]]]) -> None:
    """What people wrote is in no line of the log, however the sending ends."""
    for trouble in ("ThrottlingException", "InvalidParameter"):
        with calls.fail("sns", "Publish", trouble):
            publish(record(1, body='{"text":"secret words"}'))
    assert len(logged()) >= 2
    assert "secret" not in str(logged())
