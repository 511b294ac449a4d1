"""Starting executions and cleaning up (jobs.start_job)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from core import events
from core.aws.blobs import Blobs
from core.dependencies import dependencies
from core.jobs import Job, JobStore, begin, cancel, complete, fail
from jobs.start_job.handler import handler
from kinds.document.index.catalog import Catalog
from kinds.document.index.vectors import ObjectVectors, Version, version_of
from kinds.document.kind import DOCUMENT
from kinds.replay.kind import REPLAY
from tests.simulated_cloud.calls import Calls
from tests.simulated_cloud.clock import Clock
from tests.unit.examples import document, job, replay


class Machine:
    """A fake of Step Functions with the statuses of executions."""

    def __init__(self) -> None:
        self.executions: dict[str, str] = {}
        self.started: list[dict[str, Any]] = []

    def start(self, params: dict[str, Any]) -> dict[str, Any]:
        if params["name"] in self.executions:
            raise ClientError({"Error": {"Code": "ExecutionAlreadyExists"}}, "StartExecution")
        self.executions[params["name"]] = "RUNNING"
        self.started.append(params)
        return {"executionArn": "arn"}

    def describe(self, params: dict[str, Any]) -> dict[str, Any]:
        prefix, name = params["executionArn"].rsplit(":", 1)
        assert prefix == "arn:aws:states:eu-west-1:123456789012:execution:document"
        if name not in self.executions:
            raise ClientError({"Error": {"Code": "ExecutionDoesNotExist"}}, "DescribeExecution")
        return {"status": self.executions[name]}

    def stop(self, params: dict[str, Any]) -> dict[str, Any]:
        self.executions[params["executionArn"].rsplit(":", 1)[1]] = "ABORTED"
        return {}


@pytest.fixture
def machine(environment: dict[str, str], jobs_table: str, bucket: str) -> Iterator[Machine]:
    machine, calls = Machine(), Calls(Clock())
    calls.answers["stepfunctions:StartExecution"] = machine.start
    calls.answers["stepfunctions:DescribeExecution"] = machine.describe
    calls.answers["stepfunctions:StopExecution"] = machine.stop
    with calls.intercepted():
        yield machine


@pytest.fixture
def store(machine: Machine) -> JobStore:
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


def vectors(blobs: Blobs, subject: Job, index: str = "model-2", version: str | None = None) -> Version:
    """Vectors of a version of the job's document, by default of the job's own."""
    made = version_of(subject)
    made = replace(made, version=version or made.version)
    ObjectVectors(blobs, index=index, dimensions=1).put(made, 0, [[1.0]], [{}])
    return made


def versions(blobs: Blobs, subject: Job, index: str = "model-2") -> list[str]:
    found = ObjectVectors(blobs, index=index, dimensions=1).versions(subject.owner, subject.subject["document_id"])
    return [version.version for version in found]


# ── starting ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_start(machine: Machine, subject: Job) -> None:
    """A submitted job gets one execution with its id as the name, whose input has keys and no texts."""
    assert handle(event(subject, "uploaded")) == []
    (started,) = machine.started
    assert started["name"] == subject.job_id
    given = json.loads(started["input"])
    assert set(given) == {"job_id", "owner", "document_id", "version", "source_key", "timeout_seconds"}
    assert (given["version"], given["source_key"]) == (version_of(subject).version, subject.input["source_key"])
    assert given["timeout_seconds"] == pytest.approx(4 * 3600, abs=60)


def test_start_after_the_deadline(machine: Machine, store: JobStore) -> None:
    """The execution of an overdue job still has a minute: the reaper ends the job."""
    overdue = store.submit(DOCUMENT, job(at=time.time(), deadline=events.timestamp(time.time() - 5))).job
    handle(event(overdue, "uploaded"))
    assert json.loads(machine.started[0]["input"])["timeout_seconds"] == 60


def test_start_twice(machine: Machine, store: JobStore, subject: Job) -> None:
    """A duplicated message changes nothing while the execution runs."""
    assert handle(event(subject, "uploaded")) == handle(event(subject, "uploaded")) == []
    assert len(machine.started) == 1
    assert store.get(subject.job_id) == subject


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"])
def test_lost_execution(machine: Machine, store: JobStore, subject: Job, status: str) -> None:
    """A job whose execution ended without ending it fails."""
    machine.executions[subject.job_id] = status
    assert handle(event(subject, "uploaded")) == []
    ended = store.get(subject.job_id)
    assert ended.error is not None
    assert (ended.status, ended.error["code"]) == ("failed", "execution_lost")


def test_job_not_queued(machine: Machine, store: JobStore, subject: Job) -> None:
    """A job that was canceled or is running is not started."""
    store.apply(subject.job_id, cancel)
    other = store.submit(DOCUMENT, job(at=time.time())).job
    store.apply(other.job_id, begin(DOCUMENT, stage="validate", lease="x"))
    assert handle(event(subject, "uploaded")) == handle(event(other, "uploaded")) == []
    assert machine.started == []


def test_expired_job(machine: Machine) -> None:
    """The message of an expired job is deleted."""
    assert handle({"event": "document.uploaded", "job_id": "job_gone"}) == []
    assert machine.started == []


def test_kind_on_worker(machine: Machine, store: JobStore, blobs: Blobs) -> None:
    """A job on a worker is neither started nor stopped, and is cleaned up."""
    made = store.submit(REPLAY, replay(at=time.time())).job
    blobs.put(f"work/{made.job_id}/x", b"x")
    assert handle({"event": "replay.requested", "job_id": made.job_id}) == []
    assert store.get(made.job_id) == made
    assert list(blobs.keys("work/")) == [f"work/{made.job_id}/x"]
    store.apply(made.job_id, cancel)
    assert handle({"event": "replay.canceled", "job_id": made.job_id}) == []
    assert (machine.started, machine.executions, list(blobs.keys("work/"))) == ([], {}, [])


@pytest.mark.parametrize("name", ["document.started", "document.chunked", "document.progressed"])
def test_other_events(machine: Machine, subject: Job, blobs: Blobs, name: str) -> None:
    """Other events start and delete nothing."""
    blobs.put(f"work/{subject.job_id}/text", b"x")
    assert handle({"event": name, "job_id": subject.job_id}) == []
    assert (machine.started, len(list(blobs.keys("work/")))) == ([], 1)


@pytest.mark.parametrize("name", ["summary.requested", "summary.deleted", "summary", "ping", ""])
def test_unknown_kind(machine: Machine, logged: Callable[[], list[dict[str, Any]]], name: str) -> None:
    """A message of an unknown kind is logged and deleted."""
    assert handle({"event": name, "job_id": "job_1"}) == handle({"event": name}) == []
    assert machine.started == []
    assert [line["event_name"] for line in logged() if line["level"] == "ERROR"] == [name] * 2


def test_unknown_message(machine: Machine) -> None:
    """A message that its kind does not handle is deleted."""
    assert handle({"event": "replay.deleted", "owner": "ana"}) == []
    assert machine.started == []


# ── cleaning up ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("change", "verb"), [(cancel, "canceled"), (fail(code="x", message="y"), "failed")])
def test_stop(machine: Machine, store: JobStore, subject: Job, blobs: Blobs, change: Any, verb: str) -> None:
    """The execution of an ended job is stopped, and its vectors in all indexes and work files are deleted."""
    handle(event(subject, "uploaded"))
    blobs.put(f"work/{subject.job_id}/text", b"x")
    blobs.put(f"inputs/ana/{subject.job_id}", b"x")
    for index in ("model-2", "older-1"):
        vectors(blobs, subject, index)
    store.apply(subject.job_id, change)
    assert handle(event(subject, verb)) == handle(event(subject, verb)) == []
    assert machine.executions[subject.job_id] == "ABORTED"
    assert list(blobs.keys("")) == [f"inputs/ana/{subject.job_id}"]


def test_stop_keeps_other_versions(machine: Machine, store: JobStore, subject: Job, blobs: Blobs) -> None:
    """Other versions of the document, live or in progress, stay."""
    for version in ("0" * 26, version_of(subject).version, "Z" * 26):
        vectors(blobs, subject, version=version)
    store.apply(subject.job_id, cancel)
    assert handle(event(subject, "canceled")) == []
    assert versions(blobs, subject) == ["0" * 26, "Z" * 26]


def test_supersede(machine: Machine, store: JobStore, subject: Job, blobs: Blobs, catalog: Catalog) -> None:
    """After a version is published, older ones are deleted, and later ones stay."""
    for version in ("0" * 26, version_of(subject).version, "Z" * 26):
        vectors(blobs, subject, version=version)
    blobs.put(f"work/{subject.job_id}/text", b"x")
    store.apply(subject.job_id, begin(DOCUMENT, stage="notify", lease="x"))
    publish = catalog.publish("ana", document(version=version_of(subject).version))
    store.apply(subject.job_id, complete(DOCUMENT, lease="x", result={}), writes=[publish])
    assert handle(event(subject, "indexed")) == []
    assert versions(blobs, subject) == [version_of(subject).version, "Z" * 26]
    assert list(blobs.keys("work/")) == []


def test_failure_keeps_live_version(
    machine: Machine, store: JobStore, subject: Job, blobs: Blobs, catalog: Catalog
) -> None:
    """The live version is never deleted."""
    vectors(blobs, subject)
    store.apply(subject.job_id, begin(DOCUMENT, stage="notify", lease="x"))
    publish = catalog.publish("ana", document(version=version_of(subject).version))
    store.apply(subject.job_id, complete(DOCUMENT, lease="x", result={}), writes=[publish])
    assert handle(event(subject, "failed")) == []
    assert versions(blobs, subject) == [version_of(subject).version]


def test_deleted(machine: Machine, subject: Job, blobs: Blobs) -> None:
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


def test_failed_clean_up(machine: Machine, store: JobStore, subject: Job, blobs: Blobs) -> None:
    """A failed clean-up is repeated with the message."""
    vectors(blobs, subject)
    store.apply(subject.job_id, cancel)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Blobs, "delete", lambda *_: (_ for _ in ()).throw(RuntimeError("1 objects")))
        assert handle(event(subject, "canceled")) == [{"itemIdentifier": "m"}]
    assert handle(event(subject, "canceled")) == []
    assert versions(blobs, subject) == []
