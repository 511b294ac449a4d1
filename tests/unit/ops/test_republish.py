"""`ops republish`: events go to SNS again, byte for byte, from a job's log or from where they were parked."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from botocore.exceptions import ClientError

from core.dependencies import dependencies
from core.jobs import Job, begin, fail
from core.jobs.publisher import EventPublisher
from jobs.publisher import handler as publisher
from kinds.document.kind import DOCUMENT
from ops import republish
from tests.unit.examples import event, job
from tests.unit.ops.conftest import Answer, Deployment

Ops = Callable[..., Answer]
PARKED = ("name", "kind", "owner", "event_id", "body", "lifecycle", "status")
FAR = 4_000_000_000  # epoch seconds; the commands use the real clock


def failed_job(deployed: Deployment) -> Job:
    """Three events: uploaded, started, failed."""
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
    """Every event in order, with the stored bytes and the attributes that filters look at."""
    failed = failed_job(deployed)
    log = deployed.jobs.log.read(failed.job_id)
    told = [("submitted", "queued"), ("progress", "running"), ("ended", "failed")]
    assert ops("republish", "--job", failed.job_id) == Answer(0, "3 events published\n", "")
    common = {"kind": "document", "owner": "ana"}
    assert sent(deployed) == [
        (logged.body, {"event_type": logged.name, "lifecycle": lifecycle, "status": status} | common)
        for logged, (lifecycle, status) in zip(log, told, strict=True)
    ]


def test_failures_alert_people_again(ops: Ops, deployed: Deployment) -> None:
    """What goes to `error-alerts` when it happens goes there again."""
    failed = failed_job(deployed)
    ops("republish", "--job", failed.job_id)
    assert [attributes["event_type"] for _, attributes in sent(deployed, "error-alerts")] == ["document.failed"]


def test_a_log_longer_than_a_page_is_sent_whole(
    ops: Ops, deployed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages follow each other without a gap or a repetition."""
    monkeypatch.setattr(republish, "PAGE", 2)
    failed = failed_job(deployed)
    assert ops("republish", "--job", failed.job_id).out == "3 events published\n"
    assert [body for body, _ in sent(deployed)] == [e.body for e in deployed.jobs.log.read(failed.job_id)]


def test_an_unknown_job_is_said_to_be_unknown(ops: Ops, deployed: Deployment) -> None:
    """A mistyped id is no success."""
    answer = ops("republish", "--job", "job_01")
    assert answer == Answer(1, "", "there is no job job_01, or it has expired\n")


def test_parked_events_are_sent_and_removed(ops: Ops, deployed: Deployment) -> None:
    """Once SNS takes an event it is parked no longer; other objects are not touched."""
    park(deployed, body='{"event":"document.indexed","text":"\\u00e9"}')
    park(deployed, name="document.failed", body='{"event":"document.failed"}')
    deployed.blobs.put("parked/readme.txt", b"not an event")
    assert ops("republish", "--parked") == Answer(0, "2 events published, 0 left\n", "")
    assert {body for body, _ in sent(deployed)} == {
        '{"event":"document.indexed","text":"\\u00e9"}',
        '{"event":"document.failed"}',
    }
    assert len(sent(deployed, "error-alerts")) == 1
    assert list(deployed.blobs.keys("")) == ["parked/readme.txt"]


def test_what_is_refused_again_stays_and_holds_nothing_up(ops: Ops, deployed: Deployment) -> None:
    """One event that SNS will not take stays parked and is named; the others go."""
    refused = park(deployed, body="refuse me", event_id="evt_1")
    park(deployed, body="take me", event_id="evt_2")
    why = {"Error": {"Code": "InvalidParameter", "Message": "too long"}}
    deployed.topics.refused["refuse me"] = ClientError(why, "Publish")
    answer = ops("republish", "--parked")
    assert (answer.status, answer.out) == (1, "1 events published, 1 left\n")
    assert answer.err.startswith(f"{refused}: ")
    assert list(deployed.blobs.keys("")) == [refused]
    assert [body for body, _ in sent(deployed)] == ["take me"]


def test_nothing_parked_is_no_error(ops: Ops, deployed: Deployment) -> None:
    """An empty place is what one hopes for."""
    assert ops("republish", "--parked") == Answer(0, "0 events published, 0 left\n", "")


def test_the_publisher_writes_what_this_reads(
    ops: Ops, deployed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the publisher itself parks can be sent: the two agree on place and form."""
    parts = {"blobs": deployed.blobs, "publisher": EventPublisher(deployed.topics, "doc-events", "error-alerts")}
    for name, made in parts.items():
        monkeypatch.setitem(vars(dependencies), name, made)
    stored = event(name="document.failed")
    item = {key: getattr(stored, key) for key in PARKED}
    publisher.park({**item, "pk": "JOB#1", "sk": "EVENT#000001"}, ValueError())
    assert ops("republish", "--parked").out == "1 events published, 0 left\n"
    assert [body for body, _ in sent(deployed)] == [stored.body]


@pytest.mark.parametrize("arguments", [[], ["--parked", "--job", "job_01"]])
def test_either_a_job_or_what_was_parked(ops: Ops, deployed: Deployment, arguments: list[str]) -> None:
    """It must be said what to send, and only one of the two."""
    answer = ops("republish", *arguments)
    assert (answer.status, answer.out) == (2, "")
    assert "--parked" in answer.err
