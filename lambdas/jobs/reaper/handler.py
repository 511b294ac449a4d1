"""Once a minute: what no Catch can see. Deadlines that have passed, and messages that failed too often."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from core.aws import clients, settings
from core.aws import errors as aws_errors
from core.aws.batch import bury, carrying_on
from core.errors import NotFound, Unavailable
from core.jobs import JobStore, Kind, fail
from core.log import logger
from kinds import KINDS


@dataclass(frozen=True)
class Settings:
    jobs_table: str
    indexing_dlq_url: str
    embedding_dlq_url: str


@dataclass(frozen=True, slots=True)
class Dependencies:
    kinds: Mapping[str, Kind]
    jobs: JobStore
    states: Any
    sqs: Any
    config: Settings


@functools.cache
def dependencies() -> Dependencies:
    config, dynamodb = settings.load(Settings), clients.dynamodb()
    return Dependencies(
        KINDS,
        JobStore(dynamodb, config.jobs_table),
        clients.client("stepfunctions"),
        clients.client("sqs"),
        config,
    )


def handler(event: dict[str, Any], context: Any) -> None:
    config = dependencies().config
    with carrying_on():
        end_overdue_jobs()
    for queue_url, handle in (
        (config.indexing_dlq_url, never_started),
        (config.embedding_dlq_url, never_worked),
    ):
        with carrying_on(queue=queue_url):
            bury(dependencies().sqs, queue_url, handle)


def end_overdue_jobs() -> None:
    jobs = dependencies().jobs
    for job_id in jobs.overdue():
        with carrying_on(job_id=job_id):
            try:
                jobs.apply(job_id, fail(code="deadline_exceeded", message="The job took too long. Retry it."))
            except NotFound:
                logger.warning("job expired while it was open", job_id=job_id)


def never_started(body: str) -> bool:
    """A job that could not be started ends; a clean-up that failed stays, to be redriven."""
    message = json.loads(body)
    if message["event"] not in {kind.first_name for kind in dependencies().kinds.values()}:
        # what a kind's own route has sent belongs to no job
        logger.error("clean-up failed too often", job_id=message.get("job_id"), event_name=message["event"])
        return False
    _fail(message["job_id"], "not_started", "The job could not be started. Retry it.")
    return True


def never_worked(body: str) -> bool:
    """A state machine is told, and its Catch ends the job; a job that a worker runs ends at once."""
    task = json.loads(body)
    if "task_token" not in task:
        _fail(task["job_id"], "attempts_exhausted", "The worker failed too often. Retry the job.")
        return True
    cause = json.dumps({"errorMessage": "The worker failed too often.", "errorType": Unavailable.__name__})
    try:
        dependencies().states.send_task_failure(
            taskToken=task["task_token"], error=Unavailable.__name__, cause=cause
        )
    except ClientError as error:
        if aws_errors.code(error) not in aws_errors.TOKEN_GONE:
            raise
    return True


def _fail(job_id: str, code: str, message: str) -> None:
    try:
        dependencies().jobs.apply(job_id, fail(code=code, message=message))
    except NotFound:
        logger.warning("job has expired", job_id=job_id)
