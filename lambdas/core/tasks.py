"""Tasks of a state machine: functions that do one stage of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from core.aws import errors as aws_errors
from core.aws.blobs import Blobs, work_folder
from core.dependencies import dependencies
from core.errors import JobClosed
from core.jobs.attempt import Context, attempt_of
from core.jobs.job import Job
from core.jobs.kind import Kind, Work
from core.jobs.machine import begin
from core.jobs.results import store_if_large
from core.jobs.store import JobStore


def task(kind: Kind, stage: str, work: Work) -> Callable[[Mapping[str, Any], Context], dict[str, Any]]:
    """The handler of a Task: it begins the stage, does the work and returns the result.

    The input of the Task is `job_id` and `execution`. If a result is too large for a state's output, it is stored,
    and the handler returns `{"result_key": …}`.
    """

    @aws_errors.raises_unavailable
    def handler(event: Mapping[str, Any], context: Context) -> dict[str, Any]:
        jobs, blobs = dependencies.jobs, dependencies.blobs
        job = jobs.apply(event["job_id"], begin(kind, stage=stage, lease=event["execution"]))
        with _clean_up_if_ended(jobs, blobs, job):
            result = work(attempt_of(kind, jobs, blobs, job, lease=event["execution"], context=context))
        key = store_if_large(blobs, job, result)
        return dict(result) if key is None else {"result_key": key}

    return handler


@contextmanager
def _clean_up_if_ended(jobs: JobStore, blobs: Blobs, job: Job) -> Iterator[None]:
    """Raise JobClosed if the job has ended meanwhile, and delete files that were written after its clean-up."""
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
