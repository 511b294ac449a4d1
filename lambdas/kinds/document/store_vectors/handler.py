"""Stage 4: as many vectors as chunks, or it is an error; then the document counts as embedded."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from core.aws import clients, settings
from core.aws import errors as aws_errors
from core.aws.blobs import Blobs
from core.errors import CountMismatch, JobFailure, Superseded
from core.jobs import Job, JobStore, begin, step
from kinds.document.index import embedding
from kinds.document.index.catalog import Catalog
from kinds.document.index.vectors import ObjectVectors
from kinds.document.kind import DOCUMENT, version_of


@dataclass(frozen=True)
class Settings:
    jobs_table: str
    data_bucket: str
    embedding: str
    embedding_model: str
    embedding_dimensions: int


@dataclass(frozen=True, slots=True)
class Dependencies:
    jobs: JobStore
    catalog: Catalog
    vectors: ObjectVectors


@functools.cache
def dependencies() -> Dependencies:
    config = settings.load(Settings)
    index = embedding.index_name(config.embedding_model, config.embedding_dimensions)
    blobs, dynamodb = Blobs(clients.s3(), config.data_bucket), clients.dynamodb()
    return Dependencies(
        JobStore(dynamodb, config.jobs_table),
        Catalog(dynamodb, config.jobs_table),
        ObjectVectors(blobs, index=index, dimensions=config.embedding_dimensions),
    )


@aws_errors.raises_unavailable
def handler(event: dict[str, Any], context: Any) -> dict[str, str]:
    jobs, vectors = dependencies().jobs, dependencies().vectors
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
    if dependencies().catalog.is_outdated(made.owner, made.document_id, made.version):
        return Superseded("A newer version of this document was indexed first.")
    return CountMismatch(f"{chunks} chunks, but {vectors} vectors.")
