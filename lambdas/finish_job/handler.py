"""The one way a job ends by itself: NotifySuccess, NotifyFailure, and executions that ended past every Catch."""

from __future__ import annotations

import functools
import json
import time
from dataclasses import dataclass
from typing import Any

from core import aws, clients, events, settings
from core.documents.catalog import Catalog, Document
from core.errors import ConditionFailed, JobClosed, JobFailure, Superseded, by_name
from core.jobs import Job, JobStore, complete, fail
from core.log import logger

ENDED = {
    "TIMED_OUT": ("deadline_exceeded", "The job took too long. Retry it, or split its input."),
    "ABORTED": ("aborted", "The job was stopped by an operator. Retry it."),
}
INTERNAL = ("internal", "The job failed on our side. Retry it.")


@dataclass(frozen=True)
class Settings:
    jobs_table: str


@dataclass(frozen=True, slots=True)
class Dependencies:
    jobs: JobStore
    catalog: Catalog


@functools.cache
def dependencies() -> Dependencies:
    table = settings.load(Settings).jobs_table
    dynamodb = clients.dynamodb()
    return Dependencies(JobStore(dynamodb, table), Catalog(dynamodb, table))


@aws.raises_unavailable
def handler(event: dict[str, Any], context: Any) -> dict[str, str]:
    if event.get("detail-type") == "Step Functions Execution Status Change":
        job = execution_ended(event["detail"])
    elif "error" in event:
        job = failed(event)
    else:
        job = succeeded(event)
    logger.info("job finished", job_id=job.job_id, status=job.status)
    return {"job_id": job.job_id, "status": job.status}


def succeeded(event: dict[str, Any]) -> Job:
    """Complete the job and flip the document's pointer to its version, both or neither."""
    jobs, catalog = dependencies().jobs, dependencies().catalog
    job = jobs.get(event["job_id"])
    result = event["result"]
    document = Document(
        document_id=job.document_id,
        version=job.document_version,
        job_id=job.job_id,
        index=result["index"],
        batches=result["batches"],
        chunks=result["chunks"],
        characters=result["characters"],
        media_type=result["media_type"],
        indexed_at=events.timestamp(time.time()),
        metadata=job.metadata,
    )
    shown = {key: result[key] for key in ("document_id", "version", "media_type", "characters", "chunks")}
    try:
        return jobs.apply(
            job.job_id,
            complete(lease=event["execution"], result=shown),
            also=[catalog.publish(job.owner, document)],
        )
    except ConditionFailed as error:
        raise Superseded("A newer version of this document was indexed first.") from error


def failed(event: dict[str, Any]) -> Job:
    """End the job with what went wrong, unless it had ended before."""
    jobs = dependencies().jobs
    if event["error"].get("Error") == JobClosed.__name__:
        return jobs.get(event["job_id"])
    code, message = explain(event["error"])
    return jobs.apply(event["job_id"], fail(code=code, message=message, stage=event["stage"]))


def explain(error: dict[str, str]) -> tuple[str, str]:
    """(code, message) for the job's owner. What is not one of our own failures says nothing about its inside."""
    name = error.get("Error", "")
    if name == "States.Timeout":
        return ENDED["TIMED_OUT"]
    known = by_name(name)
    if known is None:
        return INTERNAL
    if issubclass(known, JobFailure):
        return known.code, _message(error.get("Cause", ""))
    return known.code, "A service that the job needs was not available. Retry the job later."


def _message(cause: str) -> str:
    try:
        return str(json.loads(cause)["errorMessage"])
    except (ValueError, KeyError, TypeError):
        return INTERNAL[1]


def execution_ended(detail: dict[str, Any]) -> Job:
    """An execution is named after its job. One that failed in the ordinary way has ended its job already."""
    code, message = ENDED.get(detail["status"], INTERNAL)
    return dependencies().jobs.apply(detail["name"], fail(code=code, message=message))
