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
from kinds.document.index.vectors import ObjectVectors, Version
from kinds.document.kind import DOCUMENT, version_of
from kinds.replay.kind import REPLAY
from tests.simulated_cloud.calls import Calls
from tests.simulated_cloud.clock import Clock
from tests.unit.examples import document, job, replay


class Machine:
    """Answers for Step Functions: which executions there are, and how they stand."""

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


def hear(message: dict[str, Any]) -> list[dict[str, str]]:
    record = {"messageId": "m", "body": json.dumps(message), "attributes": {"ApproximateReceiveCount": "1"}}
    return handler({"Records": [record]}, None)["batchItemFailures"]


def event(subject: Job, verb: str) -> dict[str, Any]:
    return {"event": f"document.{verb}", "job_id": subject.job_id}


def vectors(blobs: Blobs, subject: Job, index: str = "model-2", version: str | None = None) -> Version:
    """Vectors of a version of the job's document, the job's own if none is named."""
    made = version_of(subject)
    made = replace(made, version=version or made.version)
    ObjectVectors(blobs, index=index, dimensions=1).put(made, 0, [[1.0]], [{}])
    return made


def versions(blobs: Blobs, subject: Job, index: str = "model-2") -> list[str]:
    found = ObjectVectors(blobs, index=index, dimensions=1).versions(subject.owner, subject.subject["document_id"])
    return [version.version for version in found]


# ── starting ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_start(machine: Machine, subject: Job) -> None:
    """A submitted job gets one execution, named after it, which is told keys and not texts."""
    assert hear(event(subject, "uploaded")) == []
    (started,) = machine.started
    assert started["name"] == subject.job_id
    told = json.loads(started["input"])
    assert set(told) == {"job_id", "owner", "document_id", "version", "source_key", "timeout_seconds"}
    assert (told["version"], told["source_key"]) == (version_of(subject).version, subject.input["source_key"])
    assert told["timeout_seconds"] == pytest.approx(4 * 3600, abs=60)


def test_start_after_the_deadline(machine: Machine, store: JobStore) -> None:
    """A job that is late already still gets a minute, since another judges what is late."""
    late = store.submit(DOCUMENT, job(at=time.time(), deadline=events.timestamp(time.time() - 5))).job
    hear(event(late, "uploaded"))
    assert json.loads(machine.started[0]["input"])["timeout_seconds"] == 60


def test_start_twice(machine: Machine, store: JobStore, subject: Job) -> None:
    """A message that comes twice while the execution runs changes nothing."""
    assert hear(event(subject, "uploaded")) == hear(event(subject, "uploaded")) == []
    assert len(machine.started) == 1
    assert store.get(subject.job_id) == subject


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"])
def test_an_execution_that_left_its_job_open(machine: Machine, store: JobStore, subject: Job, status: str) -> None:
    """A job whose execution ended without ending it does not wait for ever."""
    machine.executions[subject.job_id] = status
    assert hear(event(subject, "uploaded")) == []
    ended = store.get(subject.job_id)
    assert ended.error is not None
    assert (ended.status, ended.error["code"]) == ("failed", "execution_lost")


def test_start_of_a_job_that_is_over(machine: Machine, store: JobStore, subject: Job) -> None:
    """A job that was canceled before it started, or that runs, is not started."""
    store.apply(subject.job_id, cancel)
    other = store.submit(DOCUMENT, job(at=time.time())).job
    store.apply(other.job_id, begin(DOCUMENT, stage="validate", lease="x"))
    assert hear(event(subject, "uploaded")) == hear(event(other, "uploaded")) == []
    assert machine.started == []


def test_a_job_that_is_gone(machine: Machine) -> None:
    """A message of a job that has expired is acknowledged."""
    assert hear({"event": "document.uploaded", "job_id": "job_gone"}) == []
    assert machine.started == []


def test_another_kind(machine: Machine, store: JobStore, blobs: Blobs) -> None:
    """A job that no state machine runs is neither started nor stopped, and what it leaves is removed."""
    made = store.submit(REPLAY, replay(at=time.time())).job
    blobs.put(f"work/{made.job_id}/x", b"x")
    assert hear({"event": "replay.requested", "job_id": made.job_id}) == []
    assert store.get(made.job_id) == made
    assert list(blobs.keys("work/")) == [f"work/{made.job_id}/x"]
    store.apply(made.job_id, cancel)
    assert hear({"event": "replay.canceled", "job_id": made.job_id}) == []
    assert (machine.started, machine.executions, list(blobs.keys("work/"))) == ([], {}, [])


@pytest.mark.parametrize("name", ["document.started", "document.chunked", "document.progressed"])
def test_what_is_neither_first_nor_last(machine: Machine, subject: Job, blobs: Blobs, name: str) -> None:
    """An event in the middle of a job starts nothing and removes nothing."""
    blobs.put(f"work/{subject.job_id}/text", b"x")
    assert hear({"event": name, "job_id": subject.job_id}) == []
    assert (machine.started, len(list(blobs.keys("work/")))) == ([], 1)


@pytest.mark.parametrize("name", ["summary.requested", "summary.deleted", "summary", "ping", ""])
def test_a_kind_that_nobody_knows(machine: Machine, logged: Callable[[], list[dict[str, Any]]], name: str) -> None:
    """A message of a kind that is not registered is logged and done with; it would fail for ever."""
    assert hear({"event": name, "job_id": "job_1"}) == hear({"event": name}) == []
    assert machine.started == []
    assert [line["event_name"] for line in logged() if line["level"] == "ERROR"] == [name] * 2


def test_a_message_that_its_kind_does_not_take(machine: Machine) -> None:
    """What is no event of a kind without messages of its own is done with."""
    assert hear({"event": "replay.deleted", "owner": "ana"}) == []
    assert machine.started == []


# ── cleaning up ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("change", "verb"), [(cancel, "canceled"), (fail(code="x", message="y"), "failed")])
def test_stop(machine: Machine, store: JobStore, subject: Job, blobs: Blobs, change: Any, verb: str) -> None:
    """An ended job's execution is stopped, and its vectors and work files go, in every index; the input stays."""
    hear(event(subject, "uploaded"))
    blobs.put(f"work/{subject.job_id}/text", b"x")
    blobs.put(f"inputs/ana/{subject.job_id}", b"x")
    for index in ("model-2", "older-1"):
        vectors(blobs, subject, index)
    store.apply(subject.job_id, change)
    assert hear(event(subject, verb)) == hear(event(subject, verb)) == []
    assert machine.executions[subject.job_id] == "ABORTED"
    assert list(blobs.keys("")) == [f"inputs/ana/{subject.job_id}"]


def test_stop_leaves_other_versions(machine: Machine, store: JobStore, subject: Job, blobs: Blobs) -> None:
    """What belongs to another version of the document, live or in the making, stays."""
    for version in ("0" * 26, version_of(subject).version, "Z" * 26):
        vectors(blobs, subject, version=version)
    store.apply(subject.job_id, cancel)
    assert hear(event(subject, "canceled")) == []
    assert versions(blobs, subject) == ["0" * 26, "Z" * 26]


def test_supersede(machine: Machine, store: JobStore, subject: Job, blobs: Blobs, catalog: Catalog) -> None:
    """After a version went live the older ones go, and one that is in the making stays."""
    for version in ("0" * 26, version_of(subject).version, "Z" * 26):
        vectors(blobs, subject, version=version)
    blobs.put(f"work/{subject.job_id}/text", b"x")
    store.apply(subject.job_id, begin(DOCUMENT, stage="notify", lease="x"))
    publish = catalog.publish("ana", document(version=version_of(subject).version))
    store.apply(subject.job_id, complete(DOCUMENT, lease="x", result={}), also=[publish])
    assert hear(event(subject, "indexed")) == []
    assert versions(blobs, subject) == [version_of(subject).version, "Z" * 26]
    assert list(blobs.keys("work/")) == []


def test_a_late_failure_leaves_the_live_version(
    machine: Machine, store: JobStore, subject: Job, blobs: Blobs, catalog: Catalog
) -> None:
    """The version that is live is never removed, whatever message comes."""
    vectors(blobs, subject)
    store.apply(subject.job_id, begin(DOCUMENT, stage="notify", lease="x"))
    publish = catalog.publish("ana", document(version=version_of(subject).version))
    store.apply(subject.job_id, complete(DOCUMENT, lease="x", result={}), also=[publish])
    assert hear(event(subject, "failed")) == []
    assert versions(blobs, subject) == [version_of(subject).version]


def test_deleted(machine: Machine, subject: Job, blobs: Blobs) -> None:
    """A removed document's versions go, but for those that were submitted after the removal."""
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
    assert hear(message) == []
    assert versions(blobs, subject) == ["Z" * 26]
    assert len(list(blobs.keys("vectors/"))) == 4


def test_cleaning_that_fails(machine: Machine, store: JobStore, subject: Job, blobs: Blobs) -> None:
    """What could not be removed is removed when the message returns."""
    vectors(blobs, subject)
    store.apply(subject.job_id, cancel)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Blobs, "delete", lambda *_: (_ for _ in ()).throw(RuntimeError("1 objects")))
        assert hear(event(subject, "canceled")) == [{"itemIdentifier": "m"}]
    assert hear(event(subject, "canceled")) == []
    assert versions(blobs, subject) == []
