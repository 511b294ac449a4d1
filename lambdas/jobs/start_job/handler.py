"""Starts the executions of kinds that a state machine runs, and cleans up after jobs of every kind."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from core.aws import errors as aws_errors
from core.aws.batch import BatchResponse, Record, process
from core.dependencies import dependencies
from core.errors import NotFound
from core.jobs import Job, Kind, fail
from core.jobs.finish import clean_up
from core.log import logger
from kinds.registry import KINDS


def handler(event: dict[str, Any], context: Any) -> BatchResponse:
    return process(event, handle)


def handle(record: Record) -> None:
    message = json.loads(record["body"])
    name = message["event"]
    kind = KINDS.get(name.partition(".")[0])
    if kind is None:
        logger.error("message of an unknown kind", event_name=name, job_id=message.get("job_id"))
    elif name in kind.names:
        _react(kind, name, message["job_id"])
    elif kind.on_message:
        kind.on_message(message, dependencies.services)


def _react(kind: Kind, name: str, job_id: str) -> None:
    try:
        job = dependencies.jobs.get(job_id)
    except NotFound:
        logger.warning("job has expired", job_id=job_id)
        return
    if name == kind.first_name and kind.runs_on == "machine":
        start(kind, job)
    elif name in kind.final_names:
        if job.status != "completed" and kind.runs_on == "machine":
            stop(job)
        clean_up(kind, job, dependencies.services)


def start(kind: Kind, job: Job) -> None:
    if job.status != "queued":
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
        _look_at_earlier(job)


def _look_at_earlier(job: Job) -> None:
    """The execution was started before. If it runs, all is well; if it ended and left the job open, end that."""
    if _execution_status(job) != "RUNNING":
        dependencies.jobs.apply(
            job.job_id, fail(code="execution_lost", message="The run of this job was lost. Retry the job.")
        )


def stop(job: Job) -> None:
    """A canceled or failed job's execution has nothing left to do."""
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
    """Until the job's deadline, and at least a minute: the sweep, not this, judges what is late."""
    return max(60, int((datetime.fromisoformat(job.deadline) - datetime.now(UTC)).total_seconds()))
