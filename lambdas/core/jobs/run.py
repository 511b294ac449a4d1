"""Work on a job: the Task of a state machine that does one stage, and the worker of a queue that does it all."""

from __future__ import annotations

import functools
import json
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from core import events, ids
from core.aws import clients, settings
from core.aws import errors as aws_errors
from core.aws.blobs import Blobs, work_folder
from core.errors import JobClosed, JobFailure, NotDue, NotFound, RecadoError, Retryable
from core.jobs.finish import clean_up_if_unwanted, complete_job
from core.jobs.job import Job
from core.jobs.kind import Attempt, Kind, Services, Work
from core.jobs.machine import begin, claim, defer, expire_lease, fail, give_back, step
from core.jobs.results import keep_large
from core.jobs.store import JobStore
from core.log import logger

BACKOFF_BASE_SECONDS, BACKOFF_CAP_SECONDS = 10.0, 300.0
MAX_DELAY_SECONDS = (
    900  # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html
)
MAX_HOPS = 10_000
"""The job's deadline ends a wait long before; this ends a message that something is wrong with."""

INTERNAL = "The job failed on our side. Retry it."
Context = Any
"""What Lambda hands to a handler beside the event."""


# ── a Task ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Settings:
    """Of a function that is a Task."""

    jobs_table: str
    data_bucket: str


@functools.cache
def dependencies() -> tuple[JobStore, Blobs]:
    config = settings.load(Settings)
    return JobStore(clients.dynamodb(), config.jobs_table), Blobs(clients.s3(), config.data_bucket)


def task(kind: Kind, stage: str, work: Work) -> Callable[[Mapping[str, Any], Context], dict[str, Any]]:
    """The handler of a Task that does this stage of a job: it begins the stage, and hands on the result.

    The Task is given `job_id` and `execution`. A result that is too large for a state is stored, and only its key
    is handed on.
    """

    @aws_errors.raises_unavailable
    def handler(event: Mapping[str, Any], context: Context) -> dict[str, Any]:
        jobs, blobs = dependencies()
        job = jobs.apply(event["job_id"], begin(kind, stage=stage, lease=event["execution"]))
        with _leaving_nothing(jobs, blobs, job):
            result = work(attempt_of(kind, jobs, blobs, job, lease=event["execution"], context=context))
        key = keep_large(blobs, job, result)
        return dict(result) if key is None else {"result_key": key}

    return handler


@contextmanager
def _leaving_nothing(jobs: JobStore, blobs: Blobs, job: Job) -> Iterator[None]:
    """Raise JobClosed if the job has ended meanwhile, and remove what was written after it was cleaned up."""
    try:
        yield
        _require_open(jobs.get(job.job_id))
    except Exception:
        if jobs.get(job.job_id).is_final:
            blobs.delete_all(work_folder(job.job_id))
        raise


def _require_open(job: Job) -> None:
    if job.is_final:
        raise JobClosed(f"the job is {job.status}")


def result_of(blobs: Blobs, handed_on: Mapping[str, Any]) -> Mapping[str, Any]:
    """The result that a Task has handed on."""
    if handed_on.keys() != {"result_key"}:
        return handed_on
    result: Mapping[str, Any] = json.loads(blobs.get(handed_on["result_key"]))
    return result


def attempt_of(kind: Kind, jobs: JobStore, blobs: Blobs, job: Job, *, lease: str, context: Context) -> Attempt:
    """What work gets to see of the job that this lease holds."""
    steps = list(kind.events)[1:-1]

    def log_step(verb: str, **facts: Any) -> None:
        if verb not in steps:
            raise ValueError(
                f"{verb!r} is no step of {kind.name}: name it among its events, between first and last"
            )
        jobs.apply(job.job_id, step(verb=verb, lease=lease, **facts))

    def report(done: int, total: int) -> None:
        jobs.report(job, done=done, total=total)

    return Attempt(job=job, blobs=blobs, seconds_left=lambda: seconds_left(context), step=log_step, report=report)


def seconds_left(context: Context) -> float:
    """Until Lambda ends the invocation."""
    return float(context.get_remaining_time_in_millis()) / 1000


# ── a worker ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Worker:
    """Does the jobs that come as messages `{job_id, hops?}` of the queue at `queue_url`."""

    kinds: Mapping[str, Kind]
    jobs: JobStore
    services: Services
    sqs: Any
    queue_url: str
    clock: Callable[[], float] = time.time

    def handle(self, message: Mapping[str, Any], context: Context) -> None:
        """Make an attempt at the job, or send the message again for later. Either way it is done with then."""
        try:
            job = self.jobs.get(message["job_id"])
        except NotFound:
            logger.warning("job has expired", job_id=message["job_id"])
            return
        kind = self.kinds.get(job.kind)
        if kind is None or kind.work is None:
            message_to_owner = "Jobs of this kind cannot be run any more."
            self.jobs.apply(job.job_id, fail(code="unknown_kind", message=message_to_owner))
            return
        try:
            self._attempt(kind, kind.work, job, context)
        except NotDue as error:
            self._send_again(message, job, until=error.until)
        except JobClosed as error:
            logger.info("nothing to do", job_id=job.job_id, reason=str(error))
        except (BotoCoreError, ClientError, Retryable) as error:
            if not isinstance(error, Retryable) and not aws_errors.is_transient(error):
                raise
            logger.warning("service not available", job_id=job.job_id, reason=aws_errors.reason(error))
            self._send_again(message, job, until=events.timestamp(self.clock() + backoff(1)))

    def _attempt(self, kind: Kind, work: Work, job: Job, context: Context) -> None:
        lease = ids.new("lease")
        job = self._claimed(kind, job, lease, context)
        try:
            self._work(kind, work, job, lease, context)
        except JobClosed:
            clean_up_if_unwanted(kind, self.jobs.get(job.job_id), self.services)
            raise

    def _claimed(self, kind: Kind, job: Job, lease: str, context: Context) -> Job:
        """The job, held by this lease as long as the invocation may last."""
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
        except Exception as error:
            logger.exception("attempt failed", job_id=job.job_id, attempts=job.attempts)
            self._give_back(kind, job, lease, error)

    def _give_back(self, kind: Kind, job: Job, lease: str, error: Exception) -> None:
        """Raises NotDue where there is to be another attempt."""
        until = events.timestamp(self.clock() + backoff(job.attempts))
        job = self.jobs.apply(job.job_id, give_back(kind, lease=lease, error=_told(error), not_before=until))
        if not job.is_final:
            raise NotDue(job.not_before or until) from error

    def _send_again(self, message: Mapping[str, Any], job: Job, *, until: str) -> None:
        """A message that is received five times is dead, so it waits as a new one, and the old one is done."""
        hops = int(message.get("hops", 0)) + 1
        if hops > MAX_HOPS:
            self.jobs.apply(job.job_id, fail(code="internal", message=INTERNAL))
            return
        self.sqs.send_message(
            QueueUrl=self.queue_url,
            MessageBody=json.dumps({"job_id": job.job_id, "hops": hops}),
            MessageGroupId=job.owner,
            DelaySeconds=self._delay(until),
        )

    def _delay(self, until: str) -> int:
        """Whole seconds, at least one: what comes too early is sent again."""
        seconds = datetime.fromisoformat(until).timestamp() - self.clock()
        return max(1, min(MAX_DELAY_SECONDS, math.ceil(seconds)))


def _told(error: Exception) -> dict[str, str]:
    """What the owner may know of it: of an error that is not ours, nothing of its inside."""
    if isinstance(error, RecadoError):
        return {"code": error.code, "message": str(error)}
    return {"code": "internal", "message": INTERNAL}


def _is_due(job: Job, now: float) -> bool:
    return job.status == "queued" and (job.not_before or "") <= events.timestamp(now)


def backoff(attempts: int) -> float:
    """Seconds until the attempt after this many, with full jitter.

    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    return random.uniform(1, min(BACKOFF_CAP_SECONDS, BACKOFF_BASE_SECONDS * 2**attempts))  # noqa: S311 spreads load
