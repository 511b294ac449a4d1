"""Ends jobs of state machines: in NotifySuccess and NotifyFailure, and after executions that no Catch handled."""

from __future__ import annotations

import json
from typing import Any

from core.aws import errors as aws_errors
from core.dependencies import dependencies
from core.errors import INTERNAL_ERROR, JobClosed, JobDeleted, JobFailure, Unavailable, by_name
from core.jobs import Job, fail
from core.jobs.finish import complete_job
from core.jobs.machine import expire
from core.jobs.results import result_of
from core.log import logger
from kinds.registry import KINDS

ABORTED = ("aborted", "The job was stopped by an operator. Retry it.")
INTERNAL = ("internal", INTERNAL_ERROR)
AWS_FAULTS = {
    *("Lambda.TooManyRequestsException", "Lambda.ServiceException", "Lambda.AWSLambdaException"),
    *("Lambda.SdkClientException", "SQS.AmazonSQSException", "SQS.SdkClientException"),
}
"""What the state machine has retried in vain: throttled by the account's concurrency, or AWS failed. No code ran.

https://docs.aws.amazon.com/step-functions/latest/dg/bp-lambda-serviceexception.html
"""


@aws_errors.raises_unavailable
def handler(event: dict[str, Any], context: Any) -> dict[str, str]:
    try:
        job = _finish(event)
    except JobDeleted:
        logger.info("job was deleted")
        return {"status": "deleted"}
    logger.info("job finished", job_id=job.job_id, status=job.status)
    return {"job_id": job.job_id, "status": job.status}


def _finish(event: dict[str, Any]) -> Job:
    if event.get("detail-type") == "Step Functions Execution Status Change":
        return execution_ended(event["detail"])
    return failed(event) if "error" in event else succeeded(event)


def succeeded(event: dict[str, Any]) -> Job:
    """Complete the job, with the writes of its kind in the same transaction.

    A repeated Task finds it completed, and its result perhaps cleaned up.
    """
    jobs, services = dependencies.jobs, dependencies.services
    job = jobs.get(event["job_id"])
    if job.status == "completed":
        return job
    kind, result = KINDS[job.kind], result_of(services.blobs, event["result"])
    return complete_job(jobs, services, kind, job, lease=event["execution"], result=result)


def failed(event: dict[str, Any]) -> Job:
    """Fail the job, unless it has ended before."""
    jobs = dependencies.jobs
    if event["error"].get("Error") == JobClosed.__name__:
        return jobs.get(event["job_id"])
    if event["error"].get("Error") == "States.Timeout":
        return jobs.apply(event["job_id"], expire)
    code, message = explain(event["error"])
    return jobs.apply(event["job_id"], fail(code=code, message=message, stage=event["stage"]))


def explain(error: dict[str, str]) -> tuple[str, str]:
    """(code, message) for the job's owner. Errors of other libraries may contain internal details."""
    name = error.get("Error", "")
    known = Unavailable if name in AWS_FAULTS else by_name(name)
    if known is None:
        return INTERNAL
    if issubclass(known, JobFailure):
        return known.code, _message(error.get("Cause", ""))
    return known.code, "A service that the job needs was not available. Retry the job later."


def _message(cause: str) -> str:
    try:
        return str(json.loads(cause)["errorMessage"])
    except (ValueError, KeyError, TypeError):
        return INTERNAL_ERROR


def execution_ended(detail: dict[str, Any]) -> Job:
    """Fail the job whose id is the name of the execution. NotifyFailure has ended most failed jobs before."""
    if detail["status"] == "TIMED_OUT":
        return dependencies.jobs.apply(detail["name"], expire)
    code, message = ABORTED if detail["status"] == "ABORTED" else INTERNAL
    return dependencies.jobs.apply(detail["name"], fail(code=code, message=message))
