"""`ops republish` sends events to SNS again, from a job's log or from the bucket, with the same bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from core.dependencies import dependencies
from core.jobs import Job, begin, fail
from core.jobs.publisher import EventPublisher
from core.jobs.tombstones import Tombstones
from jobs.publisher import handler as publisher
from kinds.document.kind import DOCUMENT
from ops import republish
from tests.unit.examples import event, job
from tests.unit.ops.conftest import Deployment, Ops, Result

PARKED = ("name", "kind", "owner", "event_id", "body", "lifecycle", "status")
FAR = 4_000_000_000  # epoch seconds; the commands use the real clock


def failed_job(deployed: Deployment) -> Job:
    """A job with three events: uploaded, started, failed."""
    draft = replace(job(), expires_at=FAR)
    deployed.jobs.submit(DOCUMENT, draft)
    deployed.jobs.apply(draft.job_id, begin(DOCUMENT, stage="validate", lease="run"))
    return deployed.jobs.apply(draft.job_id, fail(code="empty", message="The document has no text."))


def park(deployed: Deployment, **facts: str) -> str:
    parked = event(**facts)
    body = {key: getattr(parked, key) for key in PARKED}
    key = f"parked/{parked.event_id}.json"
    deployed.blobs.put(key, json.dumps(body).encode())
    return key


def sent(deployed: Deployment, topic: str = "doc-events") -> list[tuple[str, dict[str, str]]]:
    return [(body, attributes) for to, body, attributes in deployed.topics.published if to == topic]


def test_a_jobs_whole_log_is_sent_again(ops: Ops, deployed: Deployment) -> None:
    """Every event is sent in order, with the stored bytes and the attributes for filters."""
    failed = failed_job(deployed)
    log = deployed.jobs.log.read(failed.job_id)
    expected = [("submitted", "queued"), ("progress", "running"), ("ended", "failed")]
    assert ops("republish", "--job", failed.job_id) == Result(0, "3 events published\n", "")
    common = {"kind": "document", "owner": "ana"}
    assert sent(deployed) == [
        (logged.body, {"event_type": logged.name, "lifecycle": lifecycle, "status": status} | common)
        for logged, (lifecycle, status) in zip(log, expected, strict=True)
    ]


def test_all_pages_of_a_log_are_sent(ops: Ops, deployed: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """No event is missing or repeated between pages."""
    monkeypatch.setattr(republish, "PAGE", 2)
    failed = failed_job(deployed)
    assert ops("republish", "--job", failed.job_id).out == "3 events published\n"
    assert [body for body, _ in sent(deployed)] == [e.body for e in deployed.jobs.log.read(failed.job_id)]


def test_an_unknown_job_is_an_error(ops: Ops, deployed: Deployment) -> None:
    """The exit status is 1, and the error names the id."""
    result = ops("republish", "--job", "job_01")
    assert result == Result(1, "", "there is no job job_01, or it has expired\n")


def test_parked_events_are_sent_and_removed(ops: Ops, deployed: Deployment) -> None:
    """The object of an event is deleted after SNS has accepted it. Other objects are kept."""
    park(deployed, body='{"event":"document.indexed","text":"\\u00e9"}')
    park(deployed, name="document.failed", body='{"event":"document.failed"}')
    deployed.blobs.put("parked/readme.txt", b"not an event")
    assert ops("republish", "--parked") == Result(0, "2 events published, 0 left\n", "")
    assert {body for body, _ in sent(deployed)} == {
        '{"event":"document.indexed","text":"\\u00e9"}',
        '{"event":"document.failed"}',
    }
    assert len(sent(deployed, "error-alerts")) == 1
    assert list(deployed.blobs.keys("")) == ["parked/readme.txt"]


def test_an_event_that_sns_refuses_stays_parked(ops: Ops, deployed: Deployment) -> None:
    """The error names its object, and the other events are sent."""
    refused = park(deployed, body="refuse me", event_id="evt_1")
    park(deployed, body="accept me", event_id="evt_2")
    why = {"Error": {"Code": "InvalidParameter", "Message": "too long"}}
    deployed.topics.refused["refuse me"] = ClientError(why, "Publish")
    result = ops("republish", "--parked")
    assert (result.status, result.out) == (1, "1 events published, 1 left\n")
    assert result.err.startswith(f"{refused}: ")
    assert list(deployed.blobs.keys("")) == [refused]
    assert [body for body, _ in sent(deployed)] == ["accept me"]


PUBLISHER = "arn:aws:lambda:eu-west-1:123456789012:function:publisher"


def discard(deployed: Deployment, *items: dict[str, Any], function: str = PUBLISHER, name: str = "a") -> str:
    """What Lambda writes when it gives up on a batch."""
    records = [
        {"eventName": "INSERT", "dynamodb": {"NewImage": {key: {"S": value} for key, value in item.items()}}}
        for item in items
    ]
    report = {"requestContext": {"functionArn": function}, "payload": json.dumps({"Records": records})}
    deployed.blobs.put(f"aws/lambda/1-2/shard/{name}", json.dumps(report).encode())
    return f"aws/lambda/1-2/shard/{name}"


def logged(number: int, **facts: str) -> dict[str, Any]:
    """An event's item, as the stream has it."""
    body = json.dumps({"event": "document.chunked", "job_id": facts.pop("job_id", "job_1"), "number": number})
    common = {"entity": "event", "name": "document.chunked", "kind": "document", "owner": "ana"}
    return {
        **common,
        "event_id": f"evt_{number}",
        "body": body,
        "lifecycle": "progress",
        "status": "running",
    } | facts


def test_records_that_are_no_events_are_dropped(ops: Ops, deployed: Deployment) -> None:
    """Of a discarded batch only the events are sent, and of another reader's batch nothing."""
    subscription = {"pk": "JOB#1", "sk": "SUBSCRIBER#a", "entity": "subscription", "state": "requested"}
    discard(deployed, logged(1), subscription)
    discard(deployed, subscription, logged(2), function=PUBLISHER.replace("publisher", "push"), name="b")
    assert ops("republish", "--parked") == Result(0, "1 events published, 0 left\n", "")
    assert [json.loads(body)["number"] for body, _ in sent(deployed)] == [1]
    assert list(deployed.blobs.keys("")) == []


def test_no_event_of_a_batch_is_sent_twice(ops: Ops, deployed: Deployment) -> None:
    """SNS refuses one event of a batch: the next run sends that one alone."""
    batch = [logged(number) for number in (1, 2, 3)]
    discard(deployed, *batch)
    discard(deployed, batch[0], name="again")
    refused = batch[1]["body"]
    deployed.topics.refused[refused] = ClientError({"Error": {"Code": "InvalidParameter"}}, "Publish")
    first = ops("republish", "--parked")
    assert (first.status, first.out) == (1, "2 events published, 1 left\n")
    assert list(deployed.blobs.keys("")) == ["parked/evt_2.json"]
    deployed.topics.refused.clear()
    assert ops("republish", "--parked").out == "1 events published, 0 left\n"
    assert [json.loads(body)["number"] for body, _ in sent(deployed)] == [1, 3, 2]


def test_events_of_a_deleted_job_are_not_sent(ops: Ops, deployed: Deployment) -> None:
    """As the publisher drops them, so does the command, and removes them."""
    gone = failed_job(deployed)
    table = deployed.jobs.log._table
    Tombstones(deployed.jobs.log._client, table).mark(gone.job_id, owner=gone.owner)
    discard(deployed, logged(1, job_id=gone.job_id), logged(2))
    assert ops("republish", "--parked").out == "1 events published, 0 left\n"
    assert [json.loads(body)["number"] for body, _ in sent(deployed)] == [2]
    assert list(deployed.blobs.keys("")) == []


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[1]", b"null", b"caf\xe9", b'{"payload": "x"}', b'{"payload": 1}']
)
def test_what_is_unreadable_stays_and_holds_up_nothing(ops: Ops, deployed: Deployment, content: bytes) -> None:
    """The error names the object."""
    deployed.blobs.put("aws/lambda/0", content)
    discard(deployed, logged(1))
    result = ops("republish", "--parked")
    assert (result.status, result.out) == (1, "1 events published, 1 left\n")
    assert result.err.startswith("aws/lambda/0: it is neither an event nor a report of Lambda")
    assert list(deployed.blobs.keys("")) == ["aws/lambda/0"]


def test_events_that_the_publisher_parked_are_sent(
    ops: Ops, deployed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`republish` finds and reads the objects that the publisher writes."""
    parts = {"blobs": deployed.blobs, "publisher": EventPublisher(deployed.topics, "doc-events", "error-alerts")}
    for name, made in parts.items():
        monkeypatch.setitem(vars(dependencies), name, made)
    stored = event(name="document.failed")
    item = {key: getattr(stored, key) for key in PARKED}
    publisher.park({**item, "pk": "JOB#1", "sk": "EVENT#000001"}, ValueError())
    assert ops("republish", "--parked").out == "1 events published, 0 left\n"
    assert [body for body, _ in sent(deployed)] == [stored.body]


@pytest.mark.parametrize("arguments", [[], ["--parked", "--job", "job_01"]])
def test_either_job_or_parked_is_required(ops: Ops, deployed: Deployment, arguments: list[str]) -> None:
    """Neither option and both options are usage errors."""
    result = ops("republish", *arguments)
    assert (result.status, result.out) == (2, "")
    assert "--parked" in result.err
