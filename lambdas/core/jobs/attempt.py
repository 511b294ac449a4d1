"""Attempts at a job, as the work of its kind sees them."""

from __future__ import annotations

from typing import Any

from core.aws.blobs import Blobs
from core.jobs.job import Job
from core.jobs.kind import Attempt, Kind
from core.jobs.machine import require_lease, step
from core.jobs.store import JobStore

Context = Any
"""Lambda's context object."""


def attempt_of(kind: Kind, jobs: JobStore, blobs: Blobs, job: Job, *, lease: str, context: Context) -> Attempt:
    """An attempt at the job that `lease` holds."""
    steps = list(kind.events)[1:-1]

    def log_step(verb: str, **facts: Any) -> None:
        if verb not in steps:
            raise ValueError(
                f"{verb!r} is not a step of {kind.name}: declare it between the first and the last event"
            )
        jobs.apply(job.job_id, step(verb=verb, lease=lease, **facts))

    def require_open() -> None:
        require_lease(jobs.get(job.job_id), lease)

    def report(done: int, total: int) -> None:
        jobs.progress.report(job, done=done, total=total)

    return Attempt(
        job=job,
        blobs=blobs,
        seconds_left=lambda: seconds_left(context),
        require_open=require_open,
        step=log_step,
        report=report,
    )


def seconds_left(context: Context) -> float:
    """Until Lambda ends the invocation."""
    return float(context.get_remaining_time_in_millis()) / 1000
