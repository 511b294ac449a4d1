"""Ends, once a minute, jobs that no Catch of a state machine can end, and has deletions of jobs continued.

The deadline of such a job has passed, or a message about it is in a dead-letter queue.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from core.aws import task_tokens
from core.aws.batch import drain, log_and_continue
from core.dependencies import dependencies
from core.errors import NotFound, Unavailable
from core.jobs import fail, parked
from core.jobs.deletion import DELETION, request_deletion
from core.jobs.machine import expire
from core.jobs.queue_messages import BatchMessage, IndexingMessage, read_embedding_message
from core.log import log_exception, logger
from kinds.registry import KINDS

WORKER_FAILED = "The worker failed too often."


def handler(event: dict[str, Any], context: Any) -> None:
    """Every step is tried. If one fails, the run counts as failed, which an alarm watches."""
    config = dependencies.settings
    steps: dict[str, Callable[[], None]] = {
        "overdue jobs": end_overdue_jobs,
        "deletions": continue_deletions,
        "indexing DLQ": lambda: drain(dependencies.sqs, config.indexing_dlq_url, handle_indexing_message),
        "embedding DLQ": lambda: drain(dependencies.sqs, config.embedding_dlq_url, handle_embedding_message),
        "parked events": lambda: report_parked_events(time.time(), context.function_name),
    }
    failed = [name for name, step in steps.items() if not _succeeds(name, step)]
    if failed:
        raise Unavailable(f"failed: {', '.join(failed)}")


def _succeeds(name: str, step: Callable[[], None]) -> bool:
    try:
        step()
    except Exception:
        logger.exception("failed, continuing with the rest", step=name)
        return False
    return True


def report_parked_events(now: float, function: str) -> None:
    """Once an hour, count the objects of events that could not be published. `now`: epoch seconds.

    The count is a metric of this function, which an alarm watches.
    """
    if int(now) // 60 % 60:
        return
    count = sum(1 for _ in parked.keys(dependencies.blobs))
    if count:
        logger.error("events are parked", **parked.metric(count, function=function, at=now))


def end_overdue_jobs() -> None:
    jobs = dependencies.jobs
    for job_id in jobs.listing.overdue():
        with log_and_continue(job_id=job_id):
            try:
                jobs.apply(job_id, expire)
            except NotFound:
                logger.warning("job expired while it was open", job_id=job_id)


def continue_deletions() -> None:
    """Have deletions of jobs continued that were interrupted, or wait for an attempt of a webhook."""
    for tombstone in dependencies.tombstones.due():
        request_deletion(dependencies.sqs, dependencies.settings.indexing_queue_url, tombstone)


def handle_indexing_message(body: str) -> bool:
    """Fail a job that could not be started. A clean-up that failed stays in the queue, to be redriven."""
    message = IndexingMessage.read(body)
    if message.event == DELETION:  # it is continued without this message
        logger.error("deletion failed too often, will retry", job_id=message.job_id)
        return True
    if message.event not in {kind.submitted_event for kind in KINDS.values()}:
        # a message of a kind's own route has no job
        logger.error("clean-up failed too often", job_id=message.job_id, event_name=message.event)
        return False
    _fail(message.fields["job_id"], "not_started", "The job could not be started. Retry it.")
    return True


def handle_embedding_message(body: str) -> bool:
    """Fail a worker's job. Of a batch, fail the state machine's task: its Catch ends the job."""
    message = read_embedding_message(body)
    if isinstance(message, BatchMessage):
        _fail_task(message)
    else:
        _fail(message.job_id, "attempts_exhausted", f"{WORKER_FAILED} Retry the job.")
    return True


def _fail_task(message: BatchMessage) -> None:
    """Fail the task. If its state machine cannot be told, fail the job itself."""
    error = Unavailable.__name__
    try:
        task_tokens.send_failure(dependencies.states, message.token, error=error, message=WORKER_FAILED)
    except task_tokens.TokenRefused as refused:
        log_exception("job failed, its state machine cannot be told", refused, job_id=message.job_id)
        _fail(message.job_id, *task_tokens.EXECUTION_LOST)


def _fail(job_id: str, code: str, message: str) -> None:
    try:
        dependencies.jobs.apply(job_id, fail(code=code, message=message))
    except NotFound:
        logger.warning("job has expired", job_id=job_id)
