"""The end of jobs on state machines (jobs.finish_job)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from core import errors
from core.aws.blobs import Blobs
from core.dependencies import dependencies
from core.errors import JobClosed, Superseded, Unavailable
from core.jobs import JobStore, begin, cancel
from jobs.finish_job.handler import explain, handler
from kinds.document.index.catalog import Catalog
from kinds.document.kind import DOCUMENT
from tests.simulated_cloud.calls import Calls, transaction_canceled
from tests.simulated_cloud.clock import Clock
from tests.unit.examples import document, job

EXECUTION = "arn:execution"


@pytest.fixture
def store(environment: dict[str, str], jobs_table: str, bucket: str) -> JobStore:
    return dependencies.jobs


@pytest.fixture
def catalog(dynamodb: Any, jobs_table: str) -> Catalog:
    return Catalog(dynamodb, jobs_table)


def running(store: JobStore) -> str:
    job_id = store.submit(DOCUMENT, job(at=time.time(), metadata={"year": "2026"})).job.job_id
    store.apply(job_id, begin(DOCUMENT, stage="notify", lease=EXECUTION))
    return job_id


def success(job_id: str, execution: str = EXECUTION) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "execution": execution,
        "result": {
            "document_id": "notes",
            "version": job_id.removeprefix("job_"),
            "media_type": "text/plain",
            "characters": 40,
            "chunks": 3,
            "batches": 2,
            "index": "model-2",
        },
    }


def failure(job_id: str, error: str = "NoText", cause: str = '{"errorMessage": "Nothing."}') -> dict[str, Any]:
    return {
        "job_id": job_id,
        "execution": EXECUTION,
        "stage": "validate",
        "error": {"Error": error, "Cause": cause},
    }


def ended(job_id: str, status: str) -> dict[str, Any]:
    return {"detail-type": "Step Functions Execution Status Change", "detail": {"name": job_id, "status": status}}


def test_success(store: JobStore, catalog: Catalog) -> None:
    """The job completes and its document is published with the job's metadata, in one transaction."""
    job_id = running(store)
    calls = Calls(Clock())
    with calls.intercepted():
        assert handler(success(job_id), None) == {"job_id": job_id, "status": "completed"}
    (write,) = (call.params["TransactItems"] for call in calls.log if call.operation == "TransactWriteItems")
    assert [operation["Put"]["Item"]["sk"] for operation in write] == ["META", "EVENT#000003", "DOC#notes"]
    live = catalog.get("ana", "notes")
    assert live is not None
    assert (live.version, live.job_id, live.batches, live.metadata) == (
        job_id.removeprefix("job_"),
        job_id,
        2,
        {"year": "2026"},
    )
    last = json.loads(store.log.read(job_id)[-1].body)
    assert (last["event"], last["chunks"], last["characters"]) == ("document.indexed", 3, 40)
    assert not {"index", "batches"} & set(last)


def test_large_result(store: JobStore, blobs: Blobs, catalog: Catalog) -> None:
    """A result that was too large for the state machine is read from S3."""
    job_id = running(store)
    event = success(job_id)
    key = f"results/ana/{job_id}/result.json"
    blobs.put(key, json.dumps(event["result"]).encode())
    assert handler(event | {"result": {"result_key": key}}, None)["status"] == "completed"
    done, live = store.get(job_id), catalog.get("ana", "notes")
    assert (done.result or {})["chunks"] == 3
    assert done.result_key is None
    assert live is not None
    assert live.index == "model-2"


def test_success_twice(store: JobStore) -> None:
    """Repeating a success changes nothing."""
    job_id = running(store)
    assert handler(success(job_id), None) == handler(success(job_id), None)
    assert len(store.log.read(job_id)) == 3


def test_superseded(store: JobStore, catalog: Catalog, dynamodb: Any) -> None:
    """A job whose document has a newer version raises Superseded, and stays open for the failure branch."""
    job_id = running(store)
    newer = document(version="Z" * 26)
    dynamodb.put_item(**catalog.publish("ana", newer)["Put"])
    with pytest.raises(Superseded):
        handler(success(job_id), None)
    assert store.get(job_id).status == "running"
    assert (
        handler(failure(job_id, "Superseded", '{"errorMessage": "A newer version."}'), None)["status"] == "failed"
    )
    error = store.get(job_id).error
    assert error is not None
    assert (error["code"], error["message"]) == ("superseded", "A newer version.")
    assert catalog.get("ana", "notes") == newer


def test_canceled_before_success(store: JobStore, catalog: Catalog) -> None:
    """A job that was canceled does not complete, and its version is not published."""
    job_id = running(store)
    store.apply(job_id, cancel)
    with pytest.raises(JobClosed):
        handler(success(job_id), None)
    assert catalog.get("ana", "notes") is None
    assert handler(failure(job_id, "JobClosed", "{}"), None)["status"] == "canceled"


def test_another_execution(store: JobStore) -> None:
    """An execution that does not hold the job cannot complete it."""
    job_id = running(store)
    with pytest.raises(JobClosed):
        handler(success(job_id, execution="other"), None)


def test_failure(store: JobStore) -> None:
    """A failed stage fails the job with code, message and stage."""
    job_id = running(store)
    handler(failure(job_id), None)
    assert store.get(job_id).error == {"code": "no_text", "message": "Nothing.", "stage": "validate"}


def test_failure_after_the_end(store: JobStore) -> None:
    """A failure of a job that has ended changes nothing."""
    job_id = running(store)
    handler(success(job_id), None)
    assert handler(failure(job_id), None)["status"] == "completed"
    assert handler(ended(job_id, "FAILED"), None)["status"] == "completed"


FAILURES = [cls for cls in errors._subclasses(errors.JobFailure) if not cls.__subclasses__()]


@pytest.mark.parametrize("cls", FAILURES)
def test_job_failures(cls: type[errors.JobFailure]) -> None:
    """The job has the code and the message of a JobFailure."""
    cause = json.dumps({"errorMessage": "Words.", "errorType": cls.__name__, "stackTrace": ["secret"]})
    assert explain({"Error": cls.__name__, "Cause": cause}) == (cls.code, "Words.")


@pytest.mark.parametrize(
    ("error", "cause", "code"),
    [
        ("States.Timeout", "", "deadline_exceeded"),
        ("Throttled", '{"errorMessage": "secret"}', "throttled"),
        ("Unavailable", '{"errorMessage": "secret"}', "unavailable"),
        ("ValueError", '{"errorMessage": "secret"}', "internal"),
        ("Runtime.ExitError", '{"errorMessage": "secret"}', "internal"),
        ("States.DataLimitExceeded", "secret", "internal"),
        ("", "", "internal"),
    ],
)
def test_other_errors(error: str, cause: str, code: str) -> None:
    """Other errors have a code and a message without internal details."""
    event = explain({"Error": error, "Cause": cause})
    assert event[0] == code
    assert "Retry" in event[1]
    assert "secret" not in event[1]


@pytest.mark.parametrize("cause", ["", "nonsense", "[]", "{}", "null", '"text"'])
def test_invalid_cause(cause: str) -> None:
    """A failure without a readable message keeps its code."""
    code, message = explain({"Error": "NoText", "Cause": cause})
    assert code == "no_text"
    assert message


@pytest.mark.parametrize(
    ("status", "code"), [("TIMED_OUT", "deadline_exceeded"), ("ABORTED", "aborted"), ("FAILED", "internal")]
)
def test_execution_ended(store: JobStore, status: str, code: str) -> None:
    """An execution that ended without a Catch fails the job whose id is its name."""
    job_id = running(store)
    assert handler(ended(job_id, status), None)["status"] == "failed"
    error = store.get(job_id).error
    assert error is not None
    assert (error["code"], error["stage"]) == (code, "notify")


def test_unavailable_table(store: JobStore) -> None:
    """A transient error of the table is raised as Unavailable, which the state machine retries."""
    job_id = running(store)
    calls = Calls(Clock())
    calls.fail("dynamodb", "TransactWriteItems", "InternalServerError")
    with calls.intercepted(), pytest.raises(Unavailable):
        handler(success(job_id), None)
    assert handler(success(job_id), None)["status"] == "completed"


def test_lost_response(store: JobStore, catalog: Catalog) -> None:
    """A success whose response was lost can be repeated."""
    job_id = running(store)
    calls = Calls(Clock())
    calls.fail("dynamodb", "TransactWriteItems", "InternalServerError", after=True)
    with calls.intercepted(), pytest.raises(Unavailable):
        handler(success(job_id), None)
    assert handler(success(job_id), None)["status"] == "completed"
    assert len(store.log.read(job_id)) == 3


def test_conflicts(store: JobStore) -> None:
    """Conflicts of transactions are retried."""
    job_id = running(store)
    calls = Calls(Clock())
    calls.fail("dynamodb", "TransactWriteItems", transaction_canceled(), times=2)
    with calls.intercepted():
        assert handler(success(job_id), None)["status"] == "completed"
