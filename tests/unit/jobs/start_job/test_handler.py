"""Starting executions and cleaning up (jobs.start_job)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from core import events
from core.aws.blobs import Blobs
from core.dependencies import dependencies
from core.jobs import Job, JobStore, begin, cancel, complete
from jobs.start_job.handler import handler, start_delay
from kinds.document.index.catalog import Catalog
from kinds.document.index.vectors import ObjectVectors, Version, version_of
from kinds.document.kind import DOCUMENT
from kinds.replay.kind import REPLAY
from tests.simulated_cloud.calls import Calls
from tests.simulated_cloud.clock import Clock
from tests.unit.examples import document, job, replay

Executions = list[dict[str, Any]]


@pytest.fixture
def started(environment: dict[str, str], jobs_table: str, bucket: str) -> Iterator[Executions]:
    """The executions that were started, all of which run. No execution can be stopped."""
    executions: Executions = []

    def start(params: dict[str, Any]) -> dict[str, Any]:
        if params["name"] in [each["name"] for each in executions]:
            raise ClientError({"Error": {"Code": "ExecutionAlreadyExists"}}, "StartExecution")
        executions.append(params)
        return {}

    calls = Calls(Clock())
    calls.answers["stepfunctions:StartExecution"] = start
    calls.answers["stepfunctions:DescribeExecution"] = lambda params: {"status": "RUNNING"}
    with calls.intercepted():
        yield executions


@pytest.fixture
def store(started: Executions) -> JobStore:
    return dependencies.jobs


@pytest.fixture
def catalog(dynamodb: Any, jobs_table: str) -> Catalog:
    return Catalog(dynamodb, jobs_table)


@pytest.fixture
def subject(store: JobStore) -> Job:
    return store.submit(DOCUMENT, job(at=time.time())).job


def handle(message: dict[str, Any]) -> list[dict[str, str]]:
    record = {"messageId": "m", "body": json.dumps(message), "attributes": {"ApproximateReceiveCount": "1"}}
    return handler({"Records": [record]}, None)["batchItemFailures"]


def event(subject: Job, verb: str) -> dict[str, Any]:
    return {"event": f"document.{verb}", "job_id": subject.job_id}


def vectors(blobs: Blobs, subject: Job, version: str | None = None) -> Version:
    """Vectors of a version of the job's document, by default of the job's own."""
    made = version_of(subject)
    made = replace(made, version=version or made.version)
    ObjectVectors(blobs, index="model-2", dimensions=1).put(made, 0, [[1.0]], [{}])
    return made


def versions(blobs: Blobs, subject: Job) -> list[str]:
    found = ObjectVectors(blobs, index="model-2", dimensions=1).versions(
        subject.owner, subject.subject["document_id"]
    )
    return [version.version for version in found]


# ── starting ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_start_after_the_deadline(started: Executions, store: JobStore) -> None:
    """The execution of an overdue job still has a minute: the reaper ends the job."""
    overdue = store.submit(DOCUMENT, job(at=time.time(), deadline=events.timestamp(time.time() - 5))).job
    handle(event(overdue, "uploaded"))
    assert json.loads(started[0]["input"])["timeout_seconds"] == 60


@given(st.floats(0, 4 * 86_400))
def test_start_delay(age: float) -> None:
    """A waiting job asks again after 5 s to 2 minutes, and after a tenth of its age at most, from 100 s on."""
    delay = start_delay(age)
    assert 5 <= delay <= 120
    assert age < 100 or delay <= age / 10 + 1


def test_start_twice(started: Executions, store: JobStore, subject: Job) -> None:
    """A duplicated message changes nothing while the execution runs."""
    assert handle(event(subject, "uploaded")) == handle(event(subject, "uploaded")) == []
    assert len(started) == 1
    assert store.get(subject.job_id) == subject


def test_kind_on_worker(started: Executions, store: JobStore, blobs: Blobs) -> None:
    """A job on a worker is neither started nor stopped, and is cleaned up."""
    made = store.submit(REPLAY, replay(at=time.time())).job
    blobs.put(f"work/{made.job_id}/x", b"x")
    assert handle({"event": "replay.requested", "job_id": made.job_id}) == []
    assert store.get(made.job_id) == made
    assert list(blobs.keys("work/")) == [f"work/{made.job_id}/x"]
    store.apply(made.job_id, cancel)
    assert handle({"event": "replay.canceled", "job_id": made.job_id}) == []
    assert (started, list(blobs.keys("work/"))) == ([], [])


@pytest.mark.parametrize("name", ["document.started", "document.chunked", "document.progressed"])
def test_other_events(started: Executions, subject: Job, blobs: Blobs, name: str) -> None:
    """Other events start and delete nothing."""
    blobs.put(f"work/{subject.job_id}/text", b"x")
    assert handle({"event": name, "job_id": subject.job_id}) == []
    assert (started, len(list(blobs.keys("work/")))) == ([], 1)


@pytest.mark.parametrize("name", ["opera.requested", "opera.deleted", "opera", "ping", ""])
def test_unknown_kind(started: Executions, logged: Callable[[], list[dict[str, Any]]], name: str) -> None:
    """A message of an unknown kind is logged and deleted."""
    assert handle({"event": name, "job_id": "job_1"}) == handle({"event": name}) == []
    assert started == []
    assert [line["event_name"] for line in logged() if line["level"] == "ERROR"] == [name] * 2


def test_unknown_message(started: Executions) -> None:
    """A message that its kind does not handle is deleted."""
    assert handle({"event": "replay.deleted", "owner": "ana"}) == []
    assert started == []


# ── cleaning up ──────────────────────────────────────────────────────────────────────────────────────────────


def test_failure_keeps_live_version(
    started: Executions, store: JobStore, subject: Job, blobs: Blobs, catalog: Catalog
) -> None:
    """The live version is never deleted."""
    vectors(blobs, subject)
    store.apply(subject.job_id, begin(DOCUMENT, stage="notify", lease="x"))
    publish = catalog.publish("ana", document(version=version_of(subject).version))
    store.apply(subject.job_id, complete(DOCUMENT, lease="x", result={}), writes=[publish])
    assert handle(event(subject, "failed")) == []
    assert versions(blobs, subject) == [version_of(subject).version]


def test_deleted(started: Executions, subject: Job, blobs: Blobs) -> None:
    """The versions of a deleted document are deleted, except those of later jobs."""
    for version in ("0" * 26, "5" * 26, "Z" * 26):
        vectors(blobs, subject, version=version)
    other = Version("ana", "other", "0" * 26)
    ObjectVectors(blobs, index="model-2", dimensions=1).put(other, 0, [[1.0]], [{}])
    message = {
        "event": "document.deleted",
        "owner": "ana",
        "document_id": subject.subject["document_id"],
        "version": "6" * 26,
    }
    assert handle(message) == []
    assert versions(blobs, subject) == ["Z" * 26]
    assert len(list(blobs.keys("vectors/"))) == 4
