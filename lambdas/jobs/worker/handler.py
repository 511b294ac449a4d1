"""Every call of a model: batches that state machines send with a task token, and jobs that a worker runs.

The queue's concurrency is the one limit on models, however many jobs are in flight.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import ClientError

from core.aws import errors as aws_errors
from core.aws.batch import BatchResponse, Record, process, receives
from core.dependencies import dependencies
from core.errors import JobFailure, NotFound, RecadoError
from core.jobs import Job
from core.jobs.attempt import seconds_left
from core.jobs.finish import clean_up_if_unwanted
from core.jobs.worker import Worker
from core.log import logger
from kinds.registry import KINDS

LAST_RECEIVE = 5  # the queue's maxReceiveCount: the next receive would be the dead-letter queue's
SecondsLeft = Callable[[], float]


def handler(event: dict[str, Any], context: Any) -> BatchResponse:
    return process(event, lambda record: handle(record, context))


def handle(record: Record, context: Any) -> None:
    message = json.loads(record["body"])
    if "task_token" in message:
        _work_on_batch(record, message, lambda: seconds_left(context))
    else:
        worker().handle(message, context)


@functools.cache
def worker() -> Worker:
    url = dependencies.settings.embedding_queue_url
    return Worker(KINDS, dependencies.jobs, dependencies.services, dependencies.sqs, url)


def _work_on_batch(record: Record, task: Mapping[str, Any], left: SecondsLeft) -> None:
    job = _find(task["job_id"])
    if job is None or job.status != "running" or job.lease != task["execution"]:
        logger.info("batch dropped, its job is over", job_id=task["job_id"], batch=task["batch"])
        if job:
            _clean_up_if_unwanted(job)
        return
    try:
        _do(job, task, left)
        _clean_up_if_unwanted(dependencies.jobs.get(job.job_id))
    except JobFailure as error:
        fail_task(task, error)
    except Exception as error:
        if receives(record) >= LAST_RECEIVE:
            logger.exception("batch given up", job_id=job.job_id, batch=task["batch"])
            fail_task(task, error)
            return
        _come_back_later(record)
        raise
    else:
        succeed_task(task)


def _clean_up_if_unwanted(job: Job) -> None:
    """The job may have been canceled, and cleaned up after, while the model was thinking."""
    kind = KINDS.get(job.kind)
    if kind:
        clean_up_if_unwanted(kind, job, dependencies.services)


def _do(job: Job, task: Mapping[str, Any], left: SecondsLeft) -> None:
    on_batch = KINDS[job.kind].on_batch
    if on_batch is None:
        raise JobFailure(f"Jobs of the kind {job.kind} have no batches.")
    on_batch(job, task, left)


def _find(job_id: str) -> Job | None:
    try:
        return dependencies.jobs.get(job_id)
    except NotFound:
        return None


def _come_back_later(record: Record) -> None:
    """Sooner than the queue's visibility timeout, later each time."""
    wait = random.uniform(1, min(300, 15 * 2 ** receives(record)))  # noqa: S311 spreads load, guards nothing
    dependencies.sqs.change_message_visibility(
        QueueUrl=dependencies.settings.embedding_queue_url,
        ReceiptHandle=record["receiptHandle"],
        VisibilityTimeout=int(wait),
    )


def succeed_task(task: Mapping[str, Any]) -> None:
    _answer("send_task_success", taskToken=task["task_token"], output="{}")


def fail_task(task: Mapping[str, Any], error: Exception) -> None:
    """Tell the state machine in the form in which Lambda tells it: class name, and a cause in JSON."""
    message = str(error) if isinstance(error, RecadoError) else "The model could not be reached."
    cause = json.dumps({"errorMessage": message, "errorType": type(error).__name__})
    _answer("send_task_failure", taskToken=task["task_token"], error=type(error).__name__, cause=cause)


def _answer(call: str, **arguments: str) -> None:
    """A token that is used up, timed out or unknown needs no answer any more."""
    try:
        getattr(dependencies.states, call)(**arguments)
    except ClientError as error:
        if aws_errors.code(error) not in aws_errors.TOKEN_GONE:
            raise
