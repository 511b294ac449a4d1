"""Calls models: for batches that state machines send with a task token, and for jobs that run on a worker.

The concurrency of the queue's trigger limits the calls of models, however many jobs are open.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from core.aws import task_tokens
from core.aws.batch import BatchResponse, Record, process, receives
from core.aws.task_tokens import EXECUTION_LOST, TokenRefused
from core.dependencies import dependencies
from core.errors import JobDeleted, JobFailure, ModelFault, NotFound, Postponed, RecadoError
from core.jobs import Job, fail
from core.jobs.attempt import seconds_left
from core.jobs.finish import clean_up_if_failed
from core.jobs.machine import note_wait
from core.jobs.queue_messages import BatchMessage, read_embedding_message
from core.jobs.worker import Worker, queue_delay
from core.log import log_exception, logger
from kinds.registry import KINDS

LAST_RECEIVE = 5
"""The queue's maxReceiveCount: after it, the message goes to the dead-letter queue."""
RETRY_BASE_SECONDS, RETRY_CAP_SECONDS = 15, 300
SecondsLeft = Callable[[], float]


def handler(event: dict[str, Any], context: Any) -> BatchResponse:
    return process(event, lambda record: handle(record, context))


def handle(record: Record, context: Any) -> None:
    message = read_embedding_message(record["body"])
    if isinstance(message, BatchMessage):
        _handle_batch(record, message, lambda: seconds_left(context))
    else:
        worker().handle(message, context)


@functools.cache
def worker() -> Worker:
    url = dependencies.settings.embedding_queue_url
    return Worker(KINDS, dependencies.jobs, dependencies.services, dependencies.sqs, url)


def _handle_batch(record: Record, message: BatchMessage, left: SecondsLeft) -> None:
    job = _find(message.job_id)
    if job is None or job.status != "running" or job.lease != message.execution:
        logger.info("batch dropped, its job has ended", job_id=message.job_id, batch=message.batch)
        if job:
            _clean_up_if_failed(job)
        return
    failures = message.failures + receives(record) - 1
    try:
        _work_on_batch(job, message, left)
        _clean_up_if_failed(job)
        if job.waiting_for:
            dependencies.jobs.apply(job.job_id, note_wait(None))
        task_tokens.send_success(dependencies.states, message.token)
    except Postponed as error:
        _send_again(job, message, error, failures=failures)
    except JobFailure as error:
        fail_task(job, message.token, error)
    except JobDeleted as error:
        _clean_up_if_failed(job)
        fail_task(job, message.token, error)
    except Exception as error:
        if failures + 1 >= _max_failures(job, error):
            log_exception("batch failed in its last attempt", error, job_id=job.job_id, batch=message.batch)
            fail_task(job, message.token, error)
            return
        _retry_later(record)
        raise


def _max_failures(job: Job, error: Exception) -> int:
    """A failed call of a language model may have been billed, so it is made as often as the job may be tried."""
    return min(LAST_RECEIVE, KINDS[job.kind].max_attempts) if isinstance(error, ModelFault) else LAST_RECEIVE


def _send_again(job: Job, message: BatchMessage, error: Postponed, *, failures: int) -> None:
    """Send a new message: one that is received five times goes to the dead-letter queue. The task waits on."""
    if job.waiting_for != error.reason:
        dependencies.jobs.apply(job.job_id, note_wait(error.reason))
    dependencies.sqs.send_message(
        QueueUrl=dependencies.settings.embedding_queue_url,
        MessageBody=message.after(failures),
        MessageGroupId=job.owner,
        DelaySeconds=queue_delay(error.seconds),
    )


def _clean_up_if_failed(job: Job) -> None:
    """The job may have been canceled, and cleaned up, while the model was called."""
    kind = KINDS.get(job.kind)
    if kind:
        clean_up_if_failed(dependencies.jobs, kind, job, dependencies.services)


def _work_on_batch(job: Job, message: BatchMessage, left: SecondsLeft) -> None:
    on_batch = KINDS[job.kind].on_batch
    if on_batch is None:
        raise JobFailure(f"Jobs of the kind {job.kind} have no batches.")
    on_batch(job, message.fields, left)


def _find(job_id: str) -> Job | None:
    try:
        return dependencies.jobs.get(job_id)
    except NotFound:
        return None


def _retry_later(record: Record) -> None:
    """Make the message visible before the queue's visibility timeout, with exponential backoff and jitter."""
    cap = min(RETRY_CAP_SECONDS, RETRY_BASE_SECONDS * 2 ** receives(record))
    dependencies.sqs.change_message_visibility(
        QueueUrl=dependencies.settings.embedding_queue_url,
        ReceiptHandle=record["receiptHandle"],
        VisibilityTimeout=int(random.uniform(1, cap)),  # noqa: S311
    )


def fail_task(job: Job, token: str, error: Exception) -> None:
    """Errors of other libraries may contain internal details. If the token is refused, the job is failed."""
    message = str(error) if isinstance(error, RecadoError) else "The model could not be reached."
    try:
        task_tokens.send_failure(dependencies.states, token, error=type(error).__name__, message=message)
    except TokenRefused as refused:
        log_exception("job failed, its state machine cannot be told", refused, job_id=job.job_id)
        code, message = (error.code, message) if isinstance(error, JobFailure) else EXECUTION_LOST
        with suppress(NotFound):
            dependencies.jobs.apply(job.job_id, fail(code=code, message=message))
