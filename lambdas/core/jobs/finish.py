"""How a job completes, with its result and whatever its kind writes in the same transaction; and what is left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.aws.blobs import work_folder
from core.errors import ConditionFailed
from core.jobs.job import Job
from core.jobs.kind import Kind, Services
from core.jobs.machine import complete
from core.jobs.results import keep_large
from core.jobs.store import JobStore


def clean_up(kind: Kind, job: Job, services: Services) -> None:
    """Remove what is left of a job that has ended. Again is the same as once."""
    kind.on_ended(job, services)
    services.blobs.delete_all(work_folder(job.job_id))


def clean_up_if_unwanted(kind: Kind, job: Job, services: Services) -> None:
    """Clean up after a job that has ended badly: it may have been cleaned up after while it was still done."""
    if job.status in ("canceled", "failed"):
        clean_up(kind, job, services)


def complete_job(
    jobs: JobStore, services: Services, kind: Kind, job: Job, *, lease: str, result: Mapping[str, Any]
) -> Job:
    """Complete the job that this lease holds; returns it as it is then.

    Raises JobClosed where it has ended otherwise or is another's, and what the kind's completion says where one of
    its own writes is out of date.
    """
    completion = kind.on_complete(job, result, services)
    key = keep_large(services.blobs, job, completion.result)
    change = complete(kind, lease=lease, result=completion.result, result_key=key)
    try:
        return jobs.apply(job.job_id, change, also=completion.also)
    except ConditionFailed as error:
        raise completion.otherwise or error from error
