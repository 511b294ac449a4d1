"""Starts executions of jobs that run on a state machine. Cleans up after jobs of all kinds, and deletes them."""

from __future__ import annotations

import json
import random
import time
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from core.aws import errors as aws_errors
from core.aws.batch import BatchResponse, Record, process
from core.aws.task_tokens import EXECUTION_LOST
from core.dependencies import dependencies
from core.errors import JobClosed, NotFound, Unavailable
from core.jobs import Job, Kind, fail
from core.jobs.deletion import DELETION
from core.jobs.finish import clean_up
from core.jobs.machine import wait_for_place
from core.jobs.queue_messages import IndexingMessage
from core.log import logger
from kinds.registry import KINDS

MIN_START_DELAY_SECONDS, MAX_START_DELAY_SECONDS = 10, 120
MIN_EXECUTION_SECONDS = 60
"""The timeout of an execution, even if the job's deadline is nearer: the reaper ends overdue jobs."""
DELETION_SECONDS = 30
"""Of the minute that the function has. The reaper has the rest of a long deletion continued."""


def handler(event: dict[str, Any], context: Any) -> BatchResponse:
    until = time.monotonic() + DELETION_SECONDS
    return process(event, lambda record: handle(record, until))


def handle(record: Record, until: float) -> None:
    message = IndexingMessage.read(record["body"])
    kind = KINDS.get(message.kind_name)
    if message.event == DELETION:
        dependencies.deletion.run(message.fields["job_id"], clean_up=_clean_up_deleted, until=until)
    elif kind is None:
        logger.error("message of an unknown kind", event_name=message.event, job_id=message.job_id)
    elif message.event in kind.event_names:
        _handle_event(kind, message.event, message.fields["job_id"])
    elif kind.on_message:
        kind.on_message(message.fields, dependencies.services)


def _handle_event(kind: Kind, name: str, job_id: str) -> None:
    try:
        job = dependencies.jobs.get(job_id)
    except NotFound:
        logger.warning("job has expired", job_id=job_id)
        return
    if name == kind.submitted_event and kind.runs_on == "machine":
        start(kind, job)
    elif name in kind.final_events:
        _clean_up(kind, job)


def _clean_up(kind: Kind, job: Job) -> None:
    if job.status != "completed" and kind.runs_on == "machine":
        stop(job)
    clean_up(kind, job, dependencies.services)


def _clean_up_deleted(job: Job) -> None:
    """The message about the job's end finds no job any more."""
    kind = KINDS.get(job.kind)
    if kind:
        _clean_up(kind, job)


def start(kind: Kind, job: Job) -> None:
    """Start the job's execution, if its owner has a place for one more."""
    if job.status != "queued":
        return
    try:
        if not dependencies.jobs.admit(job, limit=dependencies.settings.max_running_jobs):
            _start_later(kind, job)
            return
    except JobClosed as error:
        logger.info("job not started", job_id=job.job_id, reason=str(error))
        return
    common = {"job_id": job.job_id, "owner": job.owner, "timeout_seconds": _seconds_left(job)}
    try:
        dependencies.states.start_execution(
            stateMachineArn=dependencies.settings.state_machines[kind.name],
            name=job.job_id,
            input=json.dumps({**kind.execution_input(job), **common}),
        )
    except ClientError as error:
        if aws_errors.code(error) != "ExecutionAlreadyExists":
            raise
        _check_existing_execution(job)


def _start_later(kind: Kind, job: Job) -> None:
    """Have the job started when other jobs of its owner have ended.

    A new message is sent: one that is received five times goes to the dead-letter queue. No more is sent after the
    job's deadline, when the reaper ends the job.
    """
    dependencies.jobs.apply(job.job_id, wait_for_place)
    now = time.time()
    if now < datetime.fromisoformat(job.deadline).timestamp():
        dependencies.sqs.send_message(
            QueueUrl=dependencies.settings.indexing_queue_url,
            MessageBody=IndexingMessage.to_start(kind.submitted_event, job.job_id),
            MessageGroupId=job.owner,
            DelaySeconds=start_delay(now - datetime.fromisoformat(job.created_at).timestamp()),
        )


def start_delay(age: float) -> int:
    """Seconds until a job of this age in seconds asks for a place again.

    Up to a tenth of its age, with jitter: many waiting jobs ask seldom, and a place is still taken soon.
    """
    longest = min(MAX_START_DELAY_SECONDS, max(MIN_START_DELAY_SECONDS, age / 10))
    return round(random.uniform(longest / 2, longest))  # noqa: S311 spreads the messages


def _check_existing_execution(job: Job) -> None:
    """Fail the job if its execution, which was started before, has ended and left the job open.

    One that exists and cannot be described yet is looked for when the message comes again: DescribeExecution is
    eventually consistent.
    """
    status = _execution_status(job)
    if status == "NONE":
        raise Unavailable("the execution exists and cannot be described yet")
    if status != "RUNNING":
        code, message = EXECUTION_LOST
        dependencies.jobs.apply(job.job_id, fail(code=code, message=message))


def stop(job: Job) -> None:
    """Stop the execution of a canceled or failed job."""
    if _execution_status(job) == "RUNNING":
        dependencies.states.stop_execution(
            executionArn=_execution_arn(job), error="JobClosed", cause=f"the job is {job.status}"
        )


def _execution_arn(job: Job) -> str:
    machine = dependencies.settings.state_machines[job.kind]
    return f"{machine.replace(':stateMachine:', ':execution:')}:{job.job_id}"


def _execution_status(job: Job) -> str:
    try:
        answer = dependencies.states.describe_execution(executionArn=_execution_arn(job))
    except ClientError as error:
        if aws_errors.code(error) == "ExecutionDoesNotExist":
            return "NONE"
        raise
    return str(answer["status"])


def _seconds_left(job: Job) -> int:
    left = (datetime.fromisoformat(job.deadline) - datetime.now(UTC)).total_seconds()
    return max(MIN_EXECUTION_SECONDS, int(left))
