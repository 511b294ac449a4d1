"""A queue worker: it claims a job, does the whole work, and releases the job if that fails."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from core import events, ids
from core.aws import errors as aws_errors
from core.aws.batch import MAX_QUEUE_DELAY_SECONDS
from core.errors import (
    INTERNAL_ERROR,
    JobClosed,
    JobFailure,
    NotDue,
    NotFound,
    Postponed,
    RecadoError,
    Retryable,
)
from core.jobs.attempt import Context, attempt_of, seconds_left
from core.jobs.finish import clean_up_if_failed, complete_job
from core.jobs.job import Job
from core.jobs.kind import Kind, Services, Work
from core.jobs.machine import claim, defer, expire_lease, fail, postpone, release_lease
from core.jobs.queue_messages import JobMessage
from core.jobs.store import JobStore
from core.log import log_exception, logger

BACKOFF_BASE_SECONDS, BACKOFF_CAP_SECONDS = 10.0, 300.0
MAX_HOPS = 10_000
"""How often a message is sent again after failures of AWS. Waits do not count: the job's deadline ends them."""

UNKNOWN_KIND = "The service no longer runs jobs of this kind."


@dataclass(frozen=True, slots=True)
class Worker:
    """Does the jobs in the messages of the queue at `queue_url`."""

    kinds: Mapping[str, Kind]
    jobs: JobStore
    services: Services
    sqs: Any
    queue_url: str
    clock: Callable[[], float] = time.time

    def handle(self, message: JobMessage, context: Context) -> None:
        """Make an attempt at the job, or send the message again with a delay. Then the message can be deleted."""
        try:
            job = self.jobs.get(message.job_id)
        except NotFound:
            logger.warning("job has expired", job_id=message.job_id)
            return
        kind = self.kinds.get(job.kind)
        if kind is None or kind.work is None:
            self.jobs.apply(job.job_id, fail(code="unknown_kind", message=UNKNOWN_KIND))
            return
        try:
            self._attempt(kind, kind.work, job, context)
        except NotDue as error:
            self._send_again(message, job, until=error.until)
        except JobFailure as error:
            self.jobs.apply(job.job_id, fail(code=error.code, message=str(error)))
        except JobClosed as error:
            logger.info("job has ended or is held by another worker", job_id=job.job_id, reason=str(error))
            self._send_again_if_queued(message, job)
        except (BotoCoreError, ClientError, Retryable) as error:
            if not isinstance(error, Retryable) and not aws_errors.is_transient(error):
                raise
            logger.warning("AWS service unavailable", job_id=job.job_id, reason=aws_errors.reason(error))
            self._send_after_failure(message, job)

    def _attempt(self, kind: Kind, work: Work, job: Job, context: Context) -> None:
        lease = ids.new("lease")
        job = self._claimed(kind, job, lease, context)
        try:
            self._work(kind, work, job, lease, context)
        except JobClosed:
            clean_up_if_failed(self.jobs, kind, job, self.services)
            raise

    def _claimed(self, kind: Kind, job: Job, lease: str, context: Context) -> Job:
        """The job, held by this lease until the invocation times out. Raises NotDue if it may not start yet."""
        if job.status == "running":
            job = self.jobs.apply(job.job_id, expire_lease(kind))
        now = self.clock()
        wait = kind.admit(job, self.services) if kind.admit and _is_due(job, now) else None
        if wait is not None:
            until = events.timestamp(now + wait.seconds)
            job = self.jobs.apply(job.job_id, defer(waiting_for=wait.reason, not_before=until))
            raise NotDue(job.not_before or until)
        until = events.timestamp(now + seconds_left(context))
        return self.jobs.apply(job.job_id, claim(kind, lease=lease, lease_until=until))

    def _work(self, kind: Kind, work: Work, job: Job, lease: str, context: Context) -> None:
        try:
            result = work(attempt_of(kind, self.jobs, self.services.blobs, job, lease=lease, context=context))
            complete_job(self.jobs, self.services, kind, job, lease=lease, result=result)
        except JobClosed:
            raise
        except JobFailure as error:
            self.jobs.apply(job.job_id, fail(code=error.code, message=str(error), lease=lease))
        except Postponed as error:
            self._postpone(job, lease, error)
        except Exception as error:
            log_exception("attempt failed", error, job_id=job.job_id, attempts=job.attempts)
            self._release(kind, job, lease, error)

    def _postpone(self, job: Job, lease: str, error: Postponed) -> None:
        """Always raises NotDue."""
        until = events.timestamp(self.clock() + error.seconds)
        reason = _public_error(error.cause or error)
        change = postpone(lease=lease, waiting_for=error.reason, not_before=until, error=reason)
        job = self.jobs.apply(job.job_id, change)
        raise NotDue(job.not_before or until) from error

    def _release(self, kind: Kind, job: Job, lease: str, error: Exception) -> None:
        """Raises NotDue if there will be another attempt."""
        until = events.timestamp(self.clock() + backoff(job.attempts))
        change = release_lease(kind, lease=lease, error=_public_error(error), not_before=until)
        job = self.jobs.apply(job.job_id, change)
        if not job.is_final:
            raise NotDue(job.not_before or until) from error

    def _send_again_if_queued(self, message: JobMessage, job: Job) -> None:
        """The lease may be released although the response was lost. A queued job needs a message."""
        try:
            job = self.jobs.get(job.job_id)
        except NotFound:
            return
        if job.status == "queued":
            self._send_again(message, job, until=job.not_before or events.timestamp(self.clock()))

    def _send_after_failure(self, message: JobMessage, job: Job) -> None:
        if message.hops >= MAX_HOPS:
            self.jobs.apply(job.job_id, fail(code="internal", message=INTERNAL_ERROR))
            return
        again = JobMessage(job.job_id, message.hops + 1)
        self._send_again(again, job, until=events.timestamp(self.clock() + backoff(1)))

    def _send_again(self, message: JobMessage, job: Job, *, until: str) -> None:
        """Send a new message: one that is received five times goes to the dead-letter queue."""
        self.sqs.send_message(
            QueueUrl=self.queue_url,
            MessageBody=message.body,
            MessageGroupId=job.owner,
            DelaySeconds=queue_delay(datetime.fromisoformat(until).timestamp() - self.clock()),
        )


def queue_delay(seconds: float) -> int:
    """Whole seconds, 1 to 900: a message that arrives too early is sent again."""
    return max(1, min(MAX_QUEUE_DELAY_SECONDS, math.ceil(seconds)))


def _public_error(error: Exception) -> dict[str, str]:
    """The job's error, which its owner sees. Errors of other libraries may contain internal details."""
    if isinstance(error, RecadoError):
        return {"code": error.code, "message": str(error)}
    return {"code": "internal", "message": INTERNAL_ERROR}


def _is_due(job: Job, now: float) -> bool:
    return job.status == "queued" and (job.not_before or "") <= events.timestamp(now)


def backoff(attempts: int) -> float:
    """Seconds until the next attempt after this many attempts, with full jitter.

    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    return random.uniform(1, min(BACKOFF_CAP_SECONDS, BACKOFF_BASE_SECONDS * 2**attempts))  # noqa: S311
