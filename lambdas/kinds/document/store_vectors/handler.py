"""Stage 4: as many vectors as chunks, or it is an error; then the document counts as embedded."""

from __future__ import annotations

from typing import Any

from core.aws import errors as aws_errors
from core.dependencies import dependencies
from core.errors import CountMismatch, JobFailure, Superseded
from core.jobs import Job, begin, step
from kinds.document.dependencies import document_dependencies
from kinds.document.kind import DOCUMENT, version_of


@aws_errors.raises_unavailable
def handler(event: dict[str, Any], context: Any) -> dict[str, str]:
    jobs, vectors = dependencies.jobs, document_dependencies.vectors
    job = jobs.apply(event["job_id"], begin(DOCUMENT, stage="store", lease=event["execution"]))
    count = vectors.count(version_of(job))
    if count != event["chunks"]:
        raise _reason(job, event["chunks"], count)
    done = step(verb="embedded", lease=event["execution"], next_stage="notify", vectors=count, index=vectors.index)
    jobs.apply(job.job_id, done)
    return {"index": vectors.index}


def _reason(job: Job, chunks: int, vectors: int) -> JobFailure:
    """What is newer may have come first, and the clean-up after it takes the vectors of all that is older."""
    made = version_of(job)
    if document_dependencies.catalog.is_outdated(made.owner, made.document_id, made.version):
        return Superseded("A newer version of this document was indexed first.")
    return CountMismatch(f"{chunks} chunks, but {vectors} vectors.")
