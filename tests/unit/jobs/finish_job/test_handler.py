"""The end of jobs on state machines (jobs.finish_job)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from core import errors
from core.dependencies import dependencies
from core.jobs import begin, complete
from core.jobs.machine import note_wait
from jobs.finish_job.handler import explain, handler
from kinds.document.kind import DOCUMENT
from tests.unit.examples import job

FAILURES = [cls for cls in errors._subclasses(errors.JobFailure) if not cls.__subclasses__()]


@pytest.mark.parametrize("cls", FAILURES)
def test_job_failures(cls: type[errors.JobFailure]) -> None:
    """The job has the code and the message of a JobFailure."""
    cause = json.dumps({"errorMessage": "Words.", "errorType": cls.__name__, "stackTrace": ["secret"]})
    assert explain({"Error": cls.__name__, "Cause": cause}) == (cls.code, "Words.")


@pytest.mark.parametrize(
    ("error", "cause", "code"),
    [
        ("Throttled", '{"errorMessage": "secret"}', "throttled"),
        ("Unavailable", '{"errorMessage": "secret"}', "unavailable"),
        ("Lambda.TooManyRequestsException", "secret", "unavailable"),
        ("Lambda.ServiceException", "secret", "unavailable"),
        ("SQS.AmazonSQSException", "secret", "unavailable"),
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


def test_repeated_success(environment: dict[str, str], jobs_table: str, bucket: str) -> None:
    """A repeated Task finds the job completed, also if its result was cleaned up since."""
    store = dependencies.jobs
    job_id = store.submit(DOCUMENT, job(at=time.time())).job.job_id
    store.apply(job_id, begin(DOCUMENT, stage="store", lease="arn:execution"))
    store.apply(job_id, complete(DOCUMENT, lease="arn:execution", result={}))
    event = {"job_id": job_id, "execution": "arn:execution", "result": {"result_key": f"work/{job_id}/gone.json"}}
    assert handler(event, None) == {"job_id": job_id, "status": "completed"}


@pytest.mark.parametrize(
    ("waiting_for", "code"), [(None, "deadline_exceeded"), ("provider_circuit", "model_unavailable")]
)
@pytest.mark.parametrize("is_state", [True, False])
def test_timeout(
    environment: dict[str, str], jobs_table: str, waiting_for: str | None, code: str, is_state: bool
) -> None:
    """A state or an execution that timed out exceeds the deadline, or shows that no model answered until then."""
    store = dependencies.jobs
    job_id = store.submit(DOCUMENT, job(at=time.time())).job.job_id
    store.apply(job_id, begin(DOCUMENT, stage="embed", lease="arn:execution"))
    store.apply(job_id, note_wait(waiting_for))
    event: dict[str, Any] = {"detail-type": "Step Functions Execution Status Change"}
    event["detail"] = {"name": job_id, "status": "TIMED_OUT"}
    if is_state:
        event = {"job_id": job_id, "execution": "e", "stage": "embed", "error": {"Error": "States.Timeout"}}
    handler(event, None)
    error = store.get(job_id).error
    assert error is not None
    assert (error["code"], error["stage"]) == (code, "embed")


def test_response(environment: dict[str, str], jobs_table: str) -> None:
    """The function returns the job's id and status."""
    job_id = dependencies.jobs.submit(DOCUMENT, job(at=time.time())).job.job_id
    detail = {"name": job_id, "status": "ABORTED"}
    event = {"detail-type": "Step Functions Execution Status Change", "detail": detail}
    assert handler(event, None) == {"job_id": job_id, "status": "failed"}
