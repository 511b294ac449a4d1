"""Stage 4: checks that there are as many vectors as chunks."""

from __future__ import annotations

from typing import Any

from core.aws import errors as aws_errors
from core.dependencies import dependencies
from core.errors import CountMismatch, JobFailure, Superseded
from core.jobs import Job, begin, step
from kinds.document.dependencies import document_dependencies
from kinds.document.index.vectors import version_of
from kinds.document.kind import DOCUMENT


@aws_errors.raises_unavailable
def handler(event: dict[str, Any], context: Any) -> dict[str, str]:
    jobs, vectors = dependencies.jobs, document_dependencies.vectors
    job = jobs.apply(event["job_id"], begin(DOCUMENT, stage="store", lease=event["execution"]))
    count = vectors.count(version_of(job))
    if count != event["chunks"]:
        raise _failure(job, event["chunks"], count)
    done = step(verb="embedded", lease=event["execution"], next_stage="notify", vectors=count, index=vectors.index)
    jobs.apply(job.job_id, done)
    return {"index": vectors.index}


def _failure(job: Job, chunks: int, vectors: int) -> JobFailure:
    """A newer version may have been published first: its clean-up deletes the vectors of older versions."""
    version = version_of(job)
    if document_dependencies.catalog.is_outdated(version.owner, version.document_id, version.version):
        return Superseded("A newer version of this document was indexed first.")
    return CountMismatch(f"There are {chunks} chunks, but {vectors} vectors.")
