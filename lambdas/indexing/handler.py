"""Starts a document's execution, stops a canceled one, and removes what ended jobs left behind."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from core import aws, clients, settings
from core.batch import BatchResponse, Record, process
from core.blobs import Blobs, work_folder
from core.documents.catalog import Catalog
from core.errors import NotFound
from core.jobs import Job, JobStore, fail
from core.log import logger
from core.vectors import ObjectVectors


@dataclass(frozen=True)
class Settings:
    jobs_table: str
    data_bucket: str
    state_machine: str


@dataclass(frozen=True, slots=True)
class Dependencies:
    jobs: JobStore
    catalog: Catalog
    blobs: Blobs
    states: Any
    state_machine: str


@functools.cache
def dependencies() -> Dependencies:
    config = settings.load(Settings)
    dynamodb = clients.dynamodb()
    return Dependencies(
        JobStore(dynamodb, config.jobs_table),
        Catalog(dynamodb, config.jobs_table),
        Blobs(clients.s3(), config.data_bucket),
        clients.client("stepfunctions"),
        config.state_machine,
    )


def handler(event: dict[str, Any], context: Any) -> BatchResponse:
    return process(event, handle)


def handle(record: Record) -> None:
    message = json.loads(record["body"])
    if message["event"] == "document.deleted":
        remove(message["owner"], message["document_id"], lambda version: version < message["version"])
        return
    try:
        job = dependencies().jobs.get(message["job_id"])
    except NotFound:
        logger.warning("job has expired", job_id=message["job_id"])
        return
    REACTIONS[message["event"]](job)


def start(job: Job) -> None:
    if job.status != "queued":
        return
    execution = {
        "job_id": job.job_id,
        "owner": job.owner,
        "document_id": job.document_id,
        "version": job.document_version,
        "source_key": job.input["source_key"],
        "timeout_seconds": _seconds_left(job),
    }
    try:
        dependencies().states.start_execution(
            stateMachineArn=dependencies().state_machine, name=job.job_id, input=json.dumps(execution)
        )
    except ClientError as error:
        if aws.code(error) != "ExecutionAlreadyExists":
            raise
        _look_at_earlier(job)


def _look_at_earlier(job: Job) -> None:
    """The execution was started before. If it runs, all is well; if it ended and left the job open, end that."""
    if _execution_status(job) != "RUNNING":
        dependencies().jobs.apply(
            job.job_id, fail(code="execution_lost", message="The run of this job was lost. Retry the job.")
        )


def stop(job: Job) -> None:
    """A canceled or failed job's execution has nothing left to do."""
    if _execution_status(job) == "RUNNING":
        dependencies().states.stop_execution(
            executionArn=_execution_arn(job), error="JobClosed", cause=f"the job is {job.status}"
        )
    discard(job)


def discard(job: Job) -> None:
    """Remove the work files and the vectors of a job that did not become a live version."""
    blobs = dependencies().blobs
    live = dependencies().catalog.get(job.owner, job.document_id)
    if live is None or live.version != job.document_version:
        remove(job.owner, job.document_id, lambda version: version == job.document_version)
    blobs.delete_all(work_folder(job.job_id))


def supersede(job: Job) -> None:
    """Remove the versions that the live one replaced. A newer one may be in the making and stays."""
    live = dependencies().catalog.get(job.owner, job.document_id)
    if live:
        remove(job.owner, job.document_id, lambda version: version < live.version)
    blobs = dependencies().blobs
    blobs.delete_all(work_folder(job.job_id))


def remove(owner: str, document_id: str, doomed: Callable[[str], bool]) -> None:
    """Delete versions from every index that may hold them: the model may have been exchanged since."""
    blobs = dependencies().blobs
    for index in blobs.folders("vectors/"):
        store = ObjectVectors(blobs, index=index, dimensions=1)
        for version in store.versions(owner, document_id):
            if doomed(version.version):
                store.delete(version)


def _execution_arn(job: Job) -> str:
    machine: str = dependencies().state_machine
    return f"{machine.replace(':stateMachine:', ':execution:')}:{job.job_id}"


def _execution_status(job: Job) -> str:
    try:
        answer = dependencies().states.describe_execution(executionArn=_execution_arn(job))
    except ClientError as error:
        if aws.code(error) == "ExecutionDoesNotExist":
            return "NONE"
        raise
    return str(answer["status"])


def _seconds_left(job: Job) -> int:
    """Until the job's deadline, and at least a minute: the sweep, not this, judges what is late."""
    return max(60, int((datetime.fromisoformat(job.deadline) - datetime.now(UTC)).total_seconds()))


REACTIONS: dict[str, Callable[[Job], None]] = {
    "document.uploaded": start,
    "document.indexed": supersede,
    "document.failed": stop,
    "document.canceled": stop,
}
