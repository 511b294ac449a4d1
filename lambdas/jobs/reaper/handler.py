"""Once a minute: what no Catch can see. Deadlines that have passed, and messages that failed too often."""

from __future__ import annotations

import json
from typing import Any

from botocore.exceptions import ClientError

from core.aws import errors as aws_errors
from core.aws.batch import drain, log_and_continue
from core.dependencies import dependencies
from core.errors import NotFound, Unavailable
from core.jobs import fail
from core.log import logger
from kinds.registry import KINDS


def handler(event: dict[str, Any], context: Any) -> None:
    config = dependencies.settings
    with log_and_continue():
        end_overdue_jobs()
    for queue_url, handle in (
        (config.indexing_dlq_url, never_started),
        (config.embedding_dlq_url, never_worked),
    ):
        with log_and_continue(queue=queue_url):
            drain(dependencies.sqs, queue_url, handle)


def end_overdue_jobs() -> None:
    jobs = dependencies.jobs
    for job_id in jobs.overdue():
        with log_and_continue(job_id=job_id):
            try:
                jobs.apply(job_id, fail(code="deadline_exceeded", message="The job took too long. Retry it."))
            except NotFound:
                logger.warning("job expired while it was open", job_id=job_id)


def never_started(body: str) -> bool:
    """A job that could not be started ends; a clean-up that failed stays, to be redriven."""
    message = json.loads(body)
    if message["event"] not in {kind.first_name for kind in KINDS.values()}:
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
        dependencies.states.send_task_failure(
            taskToken=task["task_token"], error=Unavailable.__name__, cause=cause
        )
    except ClientError as error:
        if aws_errors.code(error) not in aws_errors.TOKEN_GONE:
            raise
    return True


def _fail(job_id: str, code: str, message: str) -> None:
    try:
        dependencies.jobs.apply(job_id, fail(code=code, message=message))
    except NotFound:
        logger.warning("job has expired", job_id=job_id)
