"""The end of a job: its completion, with the writes of its kind in the same transaction, and its clean-up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core.aws.blobs import Blobs, work_folder
from core.errors import ConditionFailed, JobClosed, JobDeleted
from core.jobs.job import Job
from core.jobs.kind import Kind, Services
from core.jobs.machine import Change, complete
from core.jobs.results import store_if_large
from core.jobs.store import JobStore


def clean_up(kind: Kind, job: Job, services: Services) -> None:
    """Delete the files of a job that has ended. Idempotent."""
    kind.on_ended(job, services)
    services.blobs.delete_all(work_folder(job.job_id))


def clean_up_if_failed(jobs: JobStore, kind: Kind, job: Job, services: Services) -> None:
    """Clean up again if the job ended while its work went on: the work may have written files since."""
    try:
        job = jobs.get(job.job_id)
    except JobDeleted:
        job = replace(job, status="canceled")
    if job.status in ("canceled", "failed"):
        clean_up(kind, job, services)


def end_step(jobs: JobStore, blobs: Blobs, job: Job, change: Change) -> None:
    """Record a step that wrote files.

    Raises JobClosed if the job has ended. Its files were deleted then, so those written since are deleted here.
    """
    try:
        jobs.apply(job.job_id, change)
    except JobClosed:
        blobs.delete_all(work_folder(job.job_id))
        raise


def complete_job(
    jobs: JobStore, services: Services, kind: Kind, job: Job, *, lease: str, result: Mapping[str, Any]
) -> Job:
    """Complete the job that `lease` holds, and return it.

    Raises JobClosed if it has ended or another execution holds it, and the completion's `on_condition_failed` if
    the condition of one of the kind's writes failed.
    """
    completion = kind.on_complete(job, result, services)
    key = store_if_large(services.blobs, job, completion.result)
    change = complete(kind, lease=lease, result=completion.result, result_key=key)
    try:
        return jobs.apply(job.job_id, change, writes=completion.writes)
    except ConditionFailed as error:
        raise completion.on_condition_failed or error from error
