"""A recorded sample in place of a summary, where no model answers and the caller allows it."""

from __future__ import annotations

from core.aws.blobs import Blobs, work_folder
from core.errors import Postponed, RecadoError, SourceNotFound
from core.jobs import Job
from core.jobs.machine import PROVIDER_CIRCUIT

SAMPLE = {
    "summary": "(A recorded sample: no model answered.) A service runs slow work and reports when it is done.",
    "model": "sample",
    "stop_reason": "end",
    "sample": True,
}
MAX_TRIES = 3
"""How often a model is asked for one batch."""


def stands_in(blobs: Blobs, job: Job) -> bool:
    """Whether the model is not asked any more for this job."""
    return bool(job.input["allow_sample"]) and blobs.exists(_decision(job))


def may_stand_in(blobs: Blobs, job: Job, batch: int, error: RecadoError) -> bool:
    """Count a failed try, and say whether it was the last."""
    if not job.input["allow_sample"] or (isinstance(error, Postponed) and error.reason != PROVIDER_CIRCUIT):
        return False
    tries = _tries(blobs, job, batch) + 1
    blobs.put(_key(job, f"{batch:04d}"), str(tries).encode())
    if tries >= MAX_TRIES:
        blobs.put(_decision(job), b"")
    return tries >= MAX_TRIES


def _tries(blobs: Blobs, job: Job, batch: int) -> int:
    try:
        return int(blobs.get(_key(job, f"{batch:04d}")))
    except SourceNotFound:
        return 0


def _decision(job: Job) -> str:
    return _key(job, "sample")


def _key(job: Job, name: str) -> str:
    return f"{work_folder(job.job_id)}unavailable/{name}"
